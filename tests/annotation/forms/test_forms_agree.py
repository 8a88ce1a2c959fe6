"""Arguments, metadata mode and numbers mean the same in every form of annotation."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Generator

import pytest
from conftest import RunScript, Traced

from dftrace_ai import ai


def test_start_takes_what_parentheses_take(traced: Traced) -> None:
    forward = ai.compute.forward
    with traced() as rec:
        forward.start(epoch=1, step=2, args={"a": 3}, b=4)
        forward.start()
        forward.start(step=5)
        ai.comm.send.start(enable=False, step=6)
        for _ in range(3):
            forward.stop()
        ai.disable()
        forward.start(enable=True, step=7)
        forward.stop()
        ai.enable()
    t = rec.trace
    found = [e.user for e in t.named("forward")]
    assert found == [{"epoch": 1, "step": 2, "a": 3, "b": 4}, {}, {"step": 5}, {"step": 7}]
    assert t.names == {"forward": 4}
    assert t.footer["unmatched_stops"] == 0


def test_metadata_mode_in_parentheses(traced: Traced) -> None:
    node = ai.pipeline.epoch(metadata=True)

    @ai.pipeline.train(metadata=True, step=1)
    def train(x: int) -> int:
        with node:
            return x

    @ai.data.item(metadata=True)
    def items() -> Generator[int, None, None]:
        yield 1

    @ai.pipeline.test(metadata=True)
    async def test() -> None:
        async with ai.pipeline.evaluate(metadata=True):
            await asyncio.sleep(0)

    with traced() as rec:
        assert train(3) == 3
        with pytest.raises(ValueError), node:
            raise ValueError
        node.start()
        node.stop()
        assert list(items()) == [1]
        asyncio.run(test())
        with ai.compute.forward(metadata=True, enable=False):
            pass
        with pickle.loads(pickle.dumps(node)):
            pass
    t = rec.trace
    assert t.names == {}
    epoch = ["epoch.start", "epoch.end"]
    assert [key for key, _ in t.marks] == [
        *["train.start", *epoch, "train.end"],
        *epoch,
        *epoch,
        *["item.start", "item.end"] * 2,
        *["test.start", "evaluate.start", "evaluate.end", "test.end"],
        *epoch,
    ]
    assert all(value.isdigit() for _, value in t.marks)


def test_a_counter_of_one_number(traced: Traced) -> None:
    with traced() as rec:
        ai.counter("loss", 3.0)
        ai.counter("steps", 7)
        ai.counter("losses", {"train": 0.5})
        ai.counter("none", None)  # type: ignore[arg-type]
        ai.counter("text", "three")  # type: ignore[arg-type]
    found = [(e.name, e.args) for e in rec.trace.of("C") if e.args]
    assert found == [("loss", {"value": 3.0}), ("steps", {"value": 7}), ("losses", {"train": 0.5})]
    assert rec.trace.footer["args_sanitised"] == 2


def test_scalars_of_the_host_are_numbers(traced: Traced) -> None:
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    mine = type("Mine", (torch.Tensor,), {})
    given = {
        "int": (torch.tensor(4), 4),
        "float": (torch.tensor(0.5), 0.5),
        "half": (torch.tensor(1.5, dtype=torch.bfloat16), 1.5),
        "bool": (torch.tensor(True), True),
        "parameter": (torch.nn.Parameter(torch.tensor(2.0)), 2.0),
        "row": (torch.tensor([1]), "Tensor(shape=(1,), dtype=torch.int64, device=cpu)"),
        "elsewhere": (
            torch.tensor(1.0, device="meta"),
            "Tensor(shape=(), dtype=torch.float32, device=meta)",
        ),
        "derived": (
            torch.tensor(1.0).as_subclass(mine),
            "Mine(shape=(), dtype=torch.float32, device=cpu)",
        ),
        "nan": (torch.tensor(float("nan")), "NaN"),
        "np.int": (np.int64(4), 4),
        "np.float": (np.float32(0.5), 0.5),
        "np.bool": (np.bool_(True), True),
        "np.complex": (np.complex64(1 + 2j), "(1+2j)"),
        "np.array": (np.array(3), 3),
        "np.row": (np.array([3.0, 4.0]), "[3. 4.]"),
    }
    with traced() as rec:
        ai.compute.forward.update(args={key: value for key, (value, _) in given.items()})
        with ai.compute.forward:
            pass
        ai.compute.forward.reset()
    found = rec.trace.one("forward").user
    assert found == {key: want for key, (_, want) in given.items()}
    assert found["bool"] is found["np.bool"] is True


def test_io_is_recorded_whatever_dftracer_intercepts(run_script: RunScript) -> None:
    source = """
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize()
        for branch in (ai.data.io, ai.checkpoint.io, ai.other.io):
            with branch.open:
                pass
    """
    names = {"data.io.open": 1, "checkpoint.io.open": 1, "other.io.open": 1}
    assert run_script(source, env={"DFTRACER_DISABLE_IO": "1"}).trace().names == names
    off = run_script(source, env={"DFTRACER_DISABLE_IO": "0", "DFTRACE_IO": "0"})
    assert off.files == []
