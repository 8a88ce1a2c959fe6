"""Typed usages of the annotation API; type checkers judge this file, nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import Self, assert_type

import dftrace_ai
from dftrace_ai import Config, DftraceError, ai, dft_fn, dftracer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

fn = dft_fn("module")


@ai.compute.forward
def bare(x: int, scale: float = 1.0, *, name: str) -> float:
    return x * scale + len(name)


@ai.compute.forward(args={"k": 1}, epoch=1, step=2, image_idx=3, image_size=4.5, enable=True, q="x")
def with_arguments(x: int) -> list[int]:
    return [x]


@ai.data.preprocess.derive(name="collate")
def derived(batch: list[str]) -> str:
    return "".join(batch)


assert_type(bare(1, name="n"), float)
assert_type(bare(1, 2.0, name="n"), float)
assert_type(with_arguments(3), list[int])
assert_type(derived(["a"]), str)
bare("x", name="n")  # type: ignore[arg-type]
bare(1)  # type: ignore[call-arg]
with_arguments(x="s")  # type: ignore[arg-type]
derived([1])  # type: ignore[list-item]

keeps: Callable[[int], list[int]] = with_arguments


class Model:
    @ai.data.item.init
    def __init__(self, n: int) -> None:
        self.n = n

    @ai.compute.forward
    def method(self, x: int) -> str:
        return str(self.n + x)

    @classmethod
    @ai.compute.forward
    def make(cls, n: int) -> Self:
        return cls(n)

    @staticmethod
    @ai.compute.forward(step=1)
    def double(x: int) -> int:
        return 2 * x

    @ai.compute.forward
    @classmethod
    def make_outer(cls, n: int) -> int:
        return n

    @ai.compute.forward
    @staticmethod
    def double_outer(x: int) -> int:
        return 2 * x

    @fn.log_static
    @staticmethod
    def halve(x: int) -> float:
        return x / 2

    @property
    @ai.compute.forward
    def size(self) -> int:
        return self.n

    @fn.log
    def logged(self, step: int) -> bytes:
        return bytes(step)


class Child(Model):
    @ai.compute.step
    def method(self, x: int) -> str:
        return super().method(x)


assert_type(Model(3), Model)
Model("3")  # type: ignore[arg-type]
assert_type(Model(3).method(1), str)
Model(3).method("1")  # type: ignore[arg-type]
assert_type(Model.make(1), Model)
assert_type(Child.make(1), Child)
assert_type(Model.double(1), int)
assert_type(Model.make_outer(1), int)
assert_type(Model.double_outer(1), int)
assert_type(Model.halve(1), float)
assert_type(Model(3).size, int)
assert_type(Model(3).logged(step=2), bytes)


@ai.compute.forward
async def coroutine(x: int) -> str:
    return str(x)


@ai.data.item
def generator(n: int) -> Generator[int, str, bool]:
    yield n
    return True


@ai.dataloader.fetch
async def async_generator(n: int) -> AsyncGenerator[int, None]:
    yield n


coroutine_kept: Callable[[int], Coroutine[object, object, str]] = coroutine
assert_type(generator(1), Generator[int, str, bool])
assert_type(async_generator(1), AsyncGenerator[int, None])


@fn.log
def logged(step: int) -> str:
    return str(step)


@fn.log(name="renamed")
def renamed(step: int) -> bytes:
    return bytes(step)


@fn.log_static
def static(x: float) -> float:
    return x


assert_type(logged(1), str)
assert_type(renamed(1), bytes)
assert_type(static(1.0), float)
logged("x")  # type: ignore[arg-type]


class Reader:
    @fn.log_init
    def __init__(self, path: str) -> None:
        self.path = path


assert_type(Reader("x"), Reader)


@dataclass
class Batch:
    x: float


def batches() -> Iterator[Batch]:
    yield Batch(1.0)


def loops() -> None:
    for epoch in ai.pipeline.epoch.iter(range(3)):
        assert_type(epoch, int)
    for batch in ai.dataloader.fetch.iter(batches(), include_iter=False, block_name="b"):
        assert_type(batch, Batch)
    for i, text in ai.data.item.iter(enumerate(["a"]), include_block=False, iter_name="w"):
        assert_type(i, int)
        assert_type(text, str)
    for x in fn.iter([1.5], name="n", iter_name="step"):
        assert_type(x, float)
    assert_type(len(ai.data.item.iter([1])), int)
    ai.data.item.iter(3)  # type: ignore[arg-type]


async def stream() -> AsyncIterator[Batch]:
    yield Batch(1.0)


async def awaited() -> None:
    assert_type(await coroutine(1), str)
    async with ai.comm.barrier:
        pass
    async with ai.comm.send(step=1):
        pass
    async for batch in ai.dataloader.fetch.aiter(stream()):
        assert_type(batch, Batch)


def blocks() -> int:
    with ai.compute.forward:
        pass
    with ai.compute.forward(args={"a": [1]}, anything="goes"), ai.checkpoint.init(epoch=1):
        pass
    with dft_fn("io", name="read", step=1) as block:
        block.update(epoch=1, args={"bytes": 1})
    with ai.compute.backward:
        value = 1
    # a block that never swallows exceptions: what is set inside is set after it
    return value


def must_return() -> int:
    """A `with` that may swallow would make the end of this function reachable."""
    with ai.compute.step:
        return 1


def switches() -> None:
    ai.update(epoch=1, step=2, image_idx=3, image_size=1.5, args={"k": "v"}, free=object())
    ai.compute.update(layer="conv")
    ai.disable()
    ai.compute.enable()
    ai.compute.forward.reset()
    ai.pipeline.epoch.start()
    ai.pipeline.epoch.stop(metadata=True)
    assert_type(ai.compute.forward.name, str)
    assert_type(ai.data.io.read.cat, str)
    _ = ai.compute.forwards  # type: ignore[attr-defined]
    _ = ai.nonsense  # type: ignore[attr-defined]
    ai.instant("x", args={"k": 1})
    ai.counter("loss", values={"train": 0.5, "n": 1})
    ai.comm.send.flow_out("key")
    ai.comm.receive.flow_in(7)


def runs() -> None:
    run = dftrace_ai.initialize(compression="zstd", log_file="out/trace")
    run.stats()
    dftrace_ai.finalize()
    with dftrace_ai.tracing(Config(rank=1)) as other:
        other.stats()
    try:
        dftrace_ai.initialize()
    except DftraceError as error:
        assert_type(error, DftraceError)
    log = dftracer.initialize_log(logfile="x", data_dir="/d", process_id=3)
    assert_type(log, dftracer)
    assert_type(dftracer.get_instance(), dftracer)
    start: int = log.get_time()
    log.log_event("n", "c", start, 5, int_args={"a": 1}, string_args={"s": "x"})
    log.log_metadata_event("k", "v")
    log.finalize()
    assert_type(dftrace_ai.__version__, str)
