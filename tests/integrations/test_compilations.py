"""The part `compilations`: a span for each, with what was compiled and why it was done again."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import Traced
from torch._dynamo import utils

from dftrace_ai import ai
from dftrace_ai.integrations.auto import Auto


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def breaks(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x


def test_compilations_have_their_reason(traced: Traced, auto: Auto) -> None:
    figures = {field.name for field in dataclasses.fields(utils.CompilationMetrics)}
    tells_reasons = "recompile_reason" in figures
    torch._dynamo.reset()
    with traced() as rec:
        auto(parts="compilations")
        compiled = torch.compile(scaled, backend="eager", dynamic=False)
        for rows in (2, 2, 3):
            with ai.compute.forward(step=rows):
                compiled(torch.ones(rows))
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(breaks, backend="eager", fullgraph=True)(torch.ones(2))
        ai.compute.compile.disable()
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        ai.enable()
        auto.remove()
        torch.compile(lambda x: x - 1, backend="eager")(torch.ones(2))
    first, again, failed = rec.trace.named("compile")
    assert {e.cat for e in (first, again, failed)} == {"compute"}
    assert first.user["function"] == again.user["function"] == "scaled"
    assert first.user["file"] == f"{__file__}:{scaled.__code__.co_firstlineno}"
    assert (first.user["nodes"], "reason" in first.user) == (3, False)
    if tells_reasons:
        assert "expected 2, actual 3" in again.user["reason"]
    assert again.user["compile_id"].split("/")[1] == "1"
    assert failed.user["function"] == "breaks"
    assert (failed.user["failed"], "reason" in failed.user) == ("Unsupported", False)
    calls = rec.trace.named("forward")
    for call, made in zip((calls[0], calls[2]), (first, again)):
        assert call.ts_ns <= made.ts_ns
        assert made.end_ns <= call.end_ns


def test_the_backward_pass_is_compiled_when_it_is_run(traced: Traced, auto: Auto) -> None:
    torch._dynamo.reset()
    with traced() as rec:
        auto(parts="compilations")
        compiled = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")
        compiled(torch.ones(2, requires_grad=True)).backward()
        auto.remove()
    made = rec.trace.named("compile")
    assert made[0].user["function"] == "<lambda>"
    assert [e.user.get("backward") for e in made[1:]] in ([], [True])


def test_another_torch_is_told_of_once(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch._dynamo.reset()
    original = utils.log_compilation_event
    with traced() as rec:
        auto(parts="compilations")
        assert utils.log_compilation_event is not original
        auto.remove()
        assert utils.log_compilation_event is original
        with monkeypatch.context() as patch:
            patch.delattr(utils, "log_compilation_event")
            auto(parts="compilations")
            auto.remove()
        torch.compile(scaled, backend="eager")(torch.ones(2))
    assert rec.traces == []
    (told,) = (r.message for r in caplog.records if r.message.startswith("auto "))
    assert told.endswith("this version of torch lacks torch._dynamo.utils.log_compilation_event")
