"""dft_fn: functions, constructors, static methods, loops, blocks and metadata."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from enum import Enum

import pytest
from conftest import Traced

from dftrace_ai import ai, dft_fn, dftracer

fn = dft_fn("mymodule")


def test_known_arguments_are_picked_up(traced: Traced) -> None:
    @fn.log(name="f")
    def f(x: object, epoch: int, step: int = 5, *, image_idx: int = 7, image_size: float = 1.5):
        return None

    with traced() as rec:
        f(object(), 1)
        f(object(), 2, 3, image_idx=4, image_size=2.5)
        f(x=None, epoch=9, step=8)
    assert [e.user for e in rec.trace.named("f")] == [
        {"epoch": 1, "step": 5, "image_idx": 7, "image_size": 1.5},
        {"epoch": 2, "step": 3, "image_idx": 4, "image_size": 2.5},
        {"epoch": 9, "step": 8, "image_idx": 7, "image_size": 1.5},
    ]


def test_known_attributes_of_self_are_picked_up(traced: Traced) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.epoch, self.step = 3, 0

        @fn.log
        def train(self, batch: object) -> int:
            self.step += 1
            return self.step

        @fn.log
        def evaluate(self, step: int) -> None:
            pass

    trainer = Trainer()
    with traced() as rec:
        trainer.train("a")
        trainer.train("b")
        trainer.evaluate(70)
    t = rec.trace
    train, evaluate = Trainer.train.__qualname__, Trainer.evaluate.__qualname__
    assert [e.user for e in t.named(train)] == [{"epoch": 3, "step": 0}, {"epoch": 3, "step": 1}]
    assert t.one(evaluate).user == {"epoch": 3, "step": 70}


def test_nothing_of_one_call_is_left_for_the_next(traced: Traced) -> None:
    @fn.log(name="f")
    def f(**kwargs: object) -> None:
        pass

    @fn.log(name="g")
    def g(epoch: int | None = None) -> None:
        pass

    with traced() as rec:
        g(1)
        g()
        f(epoch=1)
        f()
    one, two = rec.trace.named("g")
    assert one.user == {"epoch": 1}
    assert two.user in ({}, {"epoch": None})
    assert rec.trace.named("f")[1].user == {}


def test_constructors_and_static_methods(traced: Traced) -> None:
    class Reader:
        @fn.log_init
        def __init__(self, n: int, epoch: int = 4) -> None:
            self.n = n

        @fn.log_static
        def parse(text: str) -> str:  # type: ignore[misc]
            return text.upper()

        @staticmethod
        @fn.log_static
        def inner(text: str) -> str:
            return text

        @fn.log_static(name="named")
        @staticmethod
        def outer(text: str) -> str:
            return text

    with traced() as rec:
        assert Reader(3).n == 3
        assert Reader.parse("a") == "A"
        assert Reader.inner("b") == "b"
        assert Reader(1).inner("c") == "c"
        assert Reader.outer("d") == "d"
    q = Reader.__qualname__
    assert [e.name for e in rec.trace.spans] == [
        f"{q}.__init__",
        f"{q}.parse",
        f"{q}.inner",
        f"{q}.__init__",
        f"{q}.inner",
        "named",
    ]
    assert rec.trace.spans[0].user == {"epoch": 4}


def test_coroutines_and_generators(traced: Traced) -> None:
    @fn.log(name="co")
    async def co(step: int) -> int:
        await asyncio.sleep(0)
        with ai.compute.step:
            return step

    @fn.log(name="gen")
    def gen(n: int) -> Iterator[int]:
        yield from range(n)

    assert inspect.iscoroutinefunction(co)
    assert inspect.isgeneratorfunction(gen)
    with traced() as rec:
        assert asyncio.run(co(4)) == 4
        assert list(gen(2)) == [0, 1]
    t = rec.trace
    assert t.one("co").user == {"step": 4}
    assert t.parent(t.one("step")) is t.one("co")
    assert t.names["gen"] == 2


def test_loops(traced: Traced) -> None:
    with traced() as rec:
        for x in fn.iter(range(2)):
            with ai.compute.step(step=x):
                pass
        for _ in fn.iter("a", name="lines", iter_name="line"):
            pass
    t = rec.trace
    assert t.names == {
        "loop.iter": 2,
        "loop.yield": 2,
        "step": 2,
        "lines.iter": 1,
        "lines.yield": 1,
    }
    assert [e.user["step"] for e in t.named("loop.iter")] == [1, 2]
    assert t.one("lines.yield").user["line"] == 1
    assert [t.parent(e) for e in t.named("step")] == t.named("loop.yield")


def test_as_a_block_with_update_flush_and_reset(traced: Traced) -> None:
    with traced() as rec:
        with dft_fn("io", name="read", epoch=1, step=2) as block:
            block.update(image_idx=3, args={"bytes": 10, "ratio": 0.5, "path": "/x"})
        block = dft_fn("io", name="write")
        block.reset()
        block.update(step=1)
        block.flush()
        with dft_fn("io", name="early") as early:
            early.flush()
            with ai.compute.step:
                pass
    t = rec.trace
    assert t.one("read").user == {
        "epoch": 1,
        "step": 2,
        "image_idx": 3,
        "bytes": 10,
        "ratio": 0.5,
        "path": "/x",
    }
    assert {e.cat for e in t.spans} == {"io", "compute"}
    assert t.one("write").user["step"] == 1
    assert t.names["early"] == 1
    assert t.one("step").level == 1


def test_metadata_and_enable(traced: Traced) -> None:
    off = dft_fn("mymodule", enable=False)

    @off.log
    def silent() -> int:
        return 1

    with traced() as rec:
        fn.log_metadata("key", "value")
        off.log_metadata("no", "no")
        assert silent() == 1
        assert list(off.iter([1, 2])) == [1, 2]
        with off:
            pass
    t = rec.trace
    assert t.marks == [("key", "value")]
    assert t.names == {}


class Kind(str, Enum):
    STORAGE = "storage"


def test_a_category_is_a_text_and_no_function(traced: Traced) -> None:
    with traced() as rec:
        with dft_fn(Kind.STORAGE):
            pass
        dftracer.get_instance().log_event("load", Kind.STORAGE, 0, 1)
    assert [e.cat for e in rec.trace.spans] == ["storage", "storage"]
    with pytest.raises(TypeError, match="a category is needed, not a function"):
        dft_fn(lambda: None)  # type: ignore[arg-type]


def test_shared_by_threads(traced: Traced) -> None:
    import threading

    gate = threading.Barrier(4)

    @fn.log(name="f")
    def f(step: int) -> None:
        with ai.compute.step(step=step):
            pass

    def work(n: int) -> None:
        gate.wait()
        for i in range(200):
            f(n * 1000 + i)

    with traced(overflow="wait") as rec:
        pool = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
    t = rec.trace
    steps = t.named("step")
    assert sorted(e.user["step"] for e in steps) == sorted(
        n * 1000 + i for n in range(4) for i in range(200)
    )
    for e in steps:
        up = t.parent(e)
        assert up is not None
        assert (up.name, up.user) == ("f", e.user)
