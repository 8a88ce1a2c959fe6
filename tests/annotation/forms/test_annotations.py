"""The forms of annotation: decorator, block, constructor, marks.

What arguments they have in whatever order of updates is held by `arguments/test_shared_tree.py`, that they
nest as they were called by `test_properties.py`.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Generator

import pytest
from conftest import RunScript, Traced

from dftrace_ai import ai


def test_constructors(traced: Traced) -> None:
    class Dataset:
        @ai.data.item.init
        def __init__(self, n: int) -> None:
            self.n = n

    class Checkpoint:
        @ai.checkpoint.init(args={"path": "/x"})
        def __init__(self) -> None:
            Dataset(1)

    with traced() as rec:
        assert Dataset(3).n == 3
        Checkpoint()
        with ai.checkpoint.init:
            pass
        with ai.checkpoint.init(step=2):
            pass

    assert rec.trace.tree() == [
        ["item.init", []],
        ["checkpoint.init", [["item.init", []]]],
        ["checkpoint.init", []],
        ["checkpoint.init", []],
    ]
    assert [(e.cat, e.user) for e in rec.trace.named("checkpoint.init")] == [
        ("checkpoint", {"path": "/x"}),
        ("checkpoint", {}),
        ("checkpoint", {"step": 2}),
    ]
    assert ai.checkpoint.init.name == "checkpoint.init"
    assert ai.data.item.init.cat == "data"


def test_exceptions_outside_the_common_tree_pass_through(traced: Traced) -> None:
    @ai.compute.forward
    def forward(leave: type[BaseException]) -> None:
        raise leave

    kinds = [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration]
    with traced() as rec:
        for leave in kinds:
            with pytest.raises(leave):
                forward(leave)
            with pytest.raises(leave), ai.compute.backward:
                raise leave
    found = [e.args["error"] for e in rec.trace.spans]
    assert found == [leave.__name__ for leave in kinds for _ in range(2)]


def test_manual_enter_and_exit_and_exit_stack(traced: Traced) -> None:
    from contextlib import ExitStack

    with traced() as rec:
        with ExitStack() as stack:
            stack.enter_context(ai.pipeline.train)
            stack.enter_context(ai.compute.forward)
            stack.enter_context(ai.compute.forward(step=1))
        node = ai.compute.backward
        type(node).__enter__(node)
        type(node).__exit__(node, None, None, None)
        node.__enter__()
        node.__exit__(None, None, None)
    assert rec.trace.tree() == [
        ["train", [["forward", [["forward", []]]]]],
        ["backward", []],
        ["backward", []],
    ]


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
