"""Annotations in compiled code where a graph breaks, and where Dynamo is told nothing of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import RunScript, Traced

from dftrace_ai import ai
from dftrace_ai.annotation import dynamo_rules

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    dynamo.reset()
    dynamo_rules._told.forget()
    yield
    ai.enable()
    ai.reset()
    dynamo.reset()


def breaks_in_a_with(x: Any) -> Any:
    with ai.compute.forward as node:
        y = x.sin()
        dynamo.graph_break()
        y = y + 1
        node.update(rows=2)
        y = y * 2
    return y.cos()


def holds_a_node(x: Any) -> Any:
    node = ai.compute.forward
    node.update(rows=3)
    with node:
        y = x.sin()
    node.start()
    y = y + node.derive("part")(lambda: 1)()
    node.stop()
    return y


@ai.compute.step
def breaks(x: Any) -> Any:
    y = x.sin()
    dynamo.graph_break()
    return y.cos()


class Breaks:
    @ai.compute.step
    def method(self, x: Any) -> Any:
        y = x.sin()
        dynamo.graph_break()
        return y.cos()

    @ai.compute.step
    @classmethod
    def of_class(cls, x: Any) -> Any:
        y = x.sin()
        dynamo.graph_break()
        return y.cos()


class BelowBreaks(Breaks):
    @ai.compute.step
    def method(self, x: Any) -> Any:
        return super().method(x)


def runs_as_without(step: Any) -> None:
    x = torch.linspace(0, 1, 4)
    expected = step(x)
    compiled = torch.compile(step, backend="eager")
    assert all(torch.equal(compiled(x), expected) for _ in range(3))


def test_a_block_in_which_a_graph_breaks_is_missing_and_told_once(
    traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    with traced() as rec, caplog.at_level(logging.WARNING, "dftrace_ai"):
        runs_as_without(breaks_in_a_with)
        runs_as_without(holds_a_node)
    assert rec.trace.names == {"forward": 3, "forward.part": 1}
    assert [message.split(",")[0] for message in caplog.messages] == [
        "compute.forward: the graph of a compiled function breaks inside of a `with` of it",
        "compute.forward: start() of it inside of a compiled function does nothing",
        "compute.forward: stop() of it inside of a compiled function does nothing",
    ]


def test_a_decorated_function_in_which_a_graph_breaks_is_recorded(traced: Traced) -> None:
    o, below = Breaks(), BelowBreaks()
    held = o.method
    with traced() as rec:
        for step in (
            lambda x: breaks(x) * 2,
            lambda x: o.method(x) * 2,
            lambda x: held(x) * 2,
            lambda x: o.of_class(x) * 2,
            lambda x: below.method(x) * 2,
        ):
            runs_as_without(step)
    assert rec.trace.names == {"step": (1 + 3) * (1 + 1 + 1 + 1 + 2)}


def test_a_change_of_what_later_spans_are_is_never_dropped() -> None:
    def updates(x: Any) -> Any:
        ai.update(rows=5)
        return x.sin()

    def disables(x: Any) -> Any:
        ai.compute.disable()
        return x.sin()

    for change in (updates, disables):
        with pytest.raises(dynamo.exc.Unsupported):
            torch.compile(change, backend="eager", fullgraph=True)(torch.ones(2))
        assert torch.compile(change, backend="eager")(torch.zeros(2)).tolist() == [0, 0]
    assert ai.compute.forward._copy_args() == {"rows": 5}
    assert not ai.compute.forward.enabled


def test_another_dynamo_is_left_alone_and_told_of_once(run_script: RunScript) -> None:
    done = run_script("""
        import torch
        from torch._dynamo import external_utils
        from torch._dynamo.variables import builder, ctx_manager, functions, misc, user_defined

        def state():
            return (
                dict(builder.VariableBuilder._type_dispatch()),
                functions.UserMethodVariable.__init__,
                user_defined.UserDefinedObjectVariable._maybe_get_baseclass_method,
                misc.SuperVariable._resolved_getattr_and_source,
                external_utils.wrap_inline,
            )

        kept = ctx_manager.NullContextVariable
        del ctx_manager.NullContextVariable
        plain = state()
        from dftrace_ai import ai
        assert state() == plain
        ctx_manager.NullContextVariable = kept

        @torch.compile(backend="eager")
        def with_node(x):
            with ai.compute.forward:
                return x.sin()

        assert with_node(torch.zeros(2)).tolist() == [0, 0]
    """)
    (told,) = done.stderr.splitlines()
    assert "breaks its graph with this torch: AttributeError" in told
    assert "NullContextVariable" in told


@pytest.mark.parametrize("first", ["torch._dynamo", "dftrace_ai"])
def test_it_makes_no_difference_what_is_imported_first(run_script: RunScript, first: str) -> None:
    done = run_script(f"""
        import sys
        if {first!r} == "torch._dynamo":
            import torch._dynamo
        from dftrace_ai import ai
        assert ("torch" in sys.modules) == ({first!r} == "torch._dynamo")
        import torch

        class Late(type(ai.compute.forward)):
            pass

        late = Late("mine", "late")

        @torch.compile(backend="eager", fullgraph=True)
        def step(x):
            with ai.compute.forward, late:
                return x.sin()

        assert step(torch.zeros(2)).tolist() == [0, 0]
    """)
    assert done.stderr == ""
