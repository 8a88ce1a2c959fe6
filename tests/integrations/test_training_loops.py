"""Trainings that trace themselves learn the same, bit for bit, and each has exactly its events."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from conftest import Traced
from docs.pages import DOCS, plain, section, table

from dftrace_ai.integrations.auto import Auto
from integrations.training_loops import LOOPS

# Between the lines of a training, and looked at elsewhere.
APART = {"preprocess.collate", "workers.start", "epoch", "evaluate"}


def learned(model) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.state_dict().values()]


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_a_training_learns_the_same_and_has_its_events(
    name: str, traced: Traced, auto: Auto
) -> None:
    loop = LOOPS[name]
    without, losses_without = loop.train()
    with traced(perfetto=False) as run:
        auto()
        model, losses = loop.train()
        auto.remove()
    assert losses == losses_without
    assert learned(model) == learned(without)
    trace = run.trace
    steps = [e for e in trace.spans if (e.cat, e.name) == ("pipeline", "step")]
    assert [e.args["microbatches"] for e in steps] == loop.microbatches
    assert [e.args["step"] for e in steps] == list(range(len(steps)))
    assert all(one.end_ns <= next_one.ts_ns for one, next_one in zip(steps, steps[1:]))
    found = Counter(e.name.replace(" ", "_") for e in [*trace.spans, *trace.of("i")])
    found["step"] -= len(steps)
    assert {k: v for k, v in found.items() if v and k not in APART} == loop.events
    # What a step is made of lies in it, and says so.
    for event in trace.spans:
        if event.cat == "compute" and "step" in event.args and "forward.eval" not in event.name:
            inside = [s for s in steps if s.ts_ns <= event.ts_ns and event.end_ns <= s.end_ns]
            assert [s.args["step"] for s in inside] == ([event.args["step"]] if steps else [])


def test_recomputing_is_told_where_torch_says_by_a_function_of_python_what_runs(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells = torch._C._current_graph_task_id
    monkeypatch.setattr(torch._C, "_current_graph_task_id", lambda: tells())
    with traced(perfetto=False) as run:
        auto()
        LOOPS["checkpointed"].train()
        auto.remove()
    found = Counter(e.name for e in run.trace.spans if e.cat == "compute")
    assert (found["forward"], found["forward.recompute"], found["backward"]) == (3, 3, 3)


def test_arguments_have_the_names_that_the_format_lists(
    traced: Traced, auto: Auto, tmp_path: Path
) -> None:
    with traced(perfetto=False) as run:
        auto()
        LOOPS["accumulation"].train()
        model, _ = LOOPS["two_networks_with_a_loader"].train()
        torch.save(model.state_dict(), tmp_path / "model.pt")
        auto.remove()
    listed = table(section(DOCS / "trace-format.md", "Names with a meaning"))
    told = {name for event in run.trace.spans for name in event.args}
    told -= {"hhash", "p_idx", "level"}  # of the format itself
    assert told >= {"step", "epoch", "microbatch", "microbatches", "count", "bytes"}
    assert told <= {plain(row[0]) for row in listed}
