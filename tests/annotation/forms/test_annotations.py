"""The forms of annotation: decorator, block, constructor, with arguments and without."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Traced

from dftrace_ai import ai

TABLE = {
    "compute": ["forward", "backward", "step"],
    "data": ["preprocess", "item"],
    "dataloader": ["fetch"],
    "comm": [
        "send",
        "receive",
        "barrier",
        "bcast",
        "reduce",
        "all_reduce",
        "gather",
        "all_gather",
        "scatter",
        "reduce_scatter",
        "all_to_all",
    ],
    "device": ["transfer"],
    "checkpoint": ["capture", "restart"],
    "pipeline": ["epoch", "train", "evaluate", "test"],
}
ADDITIONS = {"compute": ["compile"], "pipeline": ["step"]}
IO = ["open", "read", "write", "close"]


def every_node() -> list[tuple[Any, str, str]]:
    """(node, category, name) of the whole tree."""
    nodes = [(ai, "ai_root", "ai_root"), (ai.other, "other", "other")]
    for category, leaves in TABLE.items():
        nodes.append((getattr(ai, category), category, category))
        leaves = [*leaves, *ADDITIONS.get(category, ())]
        nodes += [(getattr(getattr(ai, category), leaf), category, leaf) for leaf in leaves]
    for category in ("data", "checkpoint", "other"):
        io = getattr(ai, category).io
        nodes.append((io, category, f"{category}.io"))
        nodes += [(getattr(io, leaf), category, f"{category}.io.{leaf}") for leaf in IO]
    nodes.append((ai.other.log, "other", "other.log"))
    return nodes


def test_every_node_of_the_tree_writes_its_name_and_category(traced: Traced) -> None:
    nodes = every_node()
    with traced() as rec:
        for node, _, _ in nodes:
            with node:
                pass
    assert [(e.cat, e.name) for e in rec.trace.spans] == [(cat, name) for _, cat, name in nodes]
    assert [(n.cat, n.name) for n, _, _ in nodes] == [(cat, name) for _, cat, name in nodes]
    assert all(e.user == {} for e in rec.trace.spans)


def test_an_unknown_node_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = ai.compute.forwards
    with pytest.raises(AttributeError):
        _ = ai.computer


def test_bare_decorator_block_and_call_nest(traced: Traced) -> None:
    @ai.compute.forward
    def forward(x: int) -> int:
        with ai.comm.all_reduce:
            return x + 1

    @ai.compute
    def compute(x: int) -> int:
        return forward(x) * 2

    with traced() as rec, ai.pipeline.train:
        assert compute(20) == 42

    assert rec.trace.tree() == [
        ["train", [["compute", [["forward", [["all_reduce", []]]]]]]],
    ]
    assert [e.level for e in rec.trace.spans] == [1, 2, 3, 4]
    assert [s.depth for s in sorted(rec.perfetto.slices, key=lambda s: s.ts_ns)] == [0, 1, 2, 3]


def test_decorator_with_arguments(traced: Traced) -> None:
    @ai.compute.forward(args={"arg1": "value1", "arg2": 2}, epoch=3, step=4)
    def forward(x: int) -> int:
        return x

    @ai.data.item(image_idx=7, image_size=1.5, precision="bf16", args={"deep": {"k": [1, 2.5]}})
    def item() -> None:
        pass

    with traced() as rec:
        assert [forward(1), forward(2)] == [1, 2]
        item()

    want = {"epoch": 3, "step": 4, "arg1": "value1", "arg2": 2}
    assert [e.user for e in rec.trace.named("forward")] == [want, want]
    assert rec.trace.one("item").user == {
        "image_idx": 7,
        "image_size": 1.5,
        "precision": "bf16",
        "deep": {"k": [1, 2.5]},
    }


def test_block_with_arguments_does_not_change_the_node(traced: Traced) -> None:
    with traced() as rec:
        with ai.compute.forward(args={"arg1": "value1"}, epoch=1, free=True):
            pass
        with ai.compute.forward:
            pass
        with ai.compute.forward(step=9):
            pass

    assert [e.user for e in rec.trace.named("forward")] == [
        {"epoch": 1, "arg1": "value1", "free": True},
        {},
        {"step": 9},
    ]


def test_parenthesised_node_inherits_what_its_node_knows(traced: Traced) -> None:
    with traced() as rec:
        ai.compute.update(epoch=5)
        with ai.compute.forward(step=1):
            pass
    assert rec.trace.one("forward").user == {"epoch": 5, "step": 1}


def test_empty_parentheses_are_a_plain_node(traced: Traced) -> None:
    @ai.compute.step()
    def step() -> str:
        return "done"

    with traced() as rec:
        assert step() == "done"
        with ai.compute.backward():
            pass
    assert rec.trace.tree() == [["step", []], ["backward", []]]


def test_one_parenthesised_object_serves_many_blocks_and_nests_in_itself(traced: Traced) -> None:
    profiler = ai.data.preprocess(args={"kind": "crop"})
    with traced() as rec:
        with profiler, profiler:
            pass
        with profiler:
            pass
    assert rec.trace.tree() == [["preprocess", [["preprocess", []]]], ["preprocess", []]]
    assert {str(e.user) for e in rec.trace.spans} == {"{'kind': 'crop'}"}


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


def test_an_exception_ends_every_span_and_names_its_type(traced: Traced) -> None:
    class Boom(Exception):
        pass

    @ai.compute.forward
    def forward() -> None:
        raise Boom("no")

    with traced() as rec:
        with pytest.raises(Boom), ai.pipeline.train:
            with pytest.raises(ValueError, match="inner"), ai.compute.step:
                raise ValueError("inner")
            forward()
        with ai.pipeline.test:
            pass

    t = rec.trace
    assert t.tree() == [["train", [["step", []], ["forward", []]]], ["test", []]]
    assert {e.name: e.args.get("error") for e in t.spans} == {
        "train": "Boom",
        "step": "ValueError",
        "forward": "Boom",
        "test": None,
    }


@pytest.mark.parametrize("leave", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_exceptions_outside_the_common_tree_pass_through(
    traced: Traced, leave: type[BaseException]
) -> None:
    @ai.compute.forward
    def forward() -> None:
        raise leave

    with traced() as rec:
        with pytest.raises(leave):
            forward()
        with pytest.raises(leave), ai.compute.backward:
            raise leave
    assert [e.args["error"] for e in rec.trace.spans] == [leave.__name__] * 2


def test_a_block_never_swallows_and_returns_itself_usably(traced: Traced) -> None:
    with traced() as rec:
        for _ in range(3):
            with ai.compute.forward as span:
                assert span is not None
            for leave in ("break", "continue"):
                with ai.compute.step:
                    if leave == "continue":
                        continue
                    break
    assert rec.trace.names == {"forward": 3, "step": 3}


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


def test_decorated_before_initialize_is_traced_after_it(traced: Traced) -> None:
    @ai.compute.forward
    def forward() -> int:
        return 1

    assert forward() == 1
    with traced() as rec:
        assert forward() == 1
    assert forward() == 1
    assert rec.trace.names == {"forward": 1}
