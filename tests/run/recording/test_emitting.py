"""The one door for events that are not spans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Traced

from dftrace_ai import ai
from dftrace_ai.annotation.node import ProfilerNode
from dftrace_ai.run import emitting

PACKAGE = Path(emitting.__file__).parents[1]
DOORS = (
    r"_native\.(instant|counter|flow|metadata|log_event|log_within|log_between|log_node_between|begin"
    r"|moment|ticks|time_us)\b"
)


def test_every_kind_of_event(traced: Traced) -> None:
    with traced() as run:
        with ai.compute.step:
            then = emitting.moment()
            emitting.flow_out("arrow", 7)
        with ai.compute.forward:
            emitting.flow_in("arrow", 7)
            emitting.instant("now", {"n": 1}, category="test")
            emitting.instant("then", category="test", track="of its own", at=then)
            emitting.counter("loss", 0.5)
            emitting.counter("losses", {"a": 1, "b": "no number"}, at=then)
            emitting.metadata("key", "value")
            emitting.metadata(7, 3)
            emitting.metadata("none", None)
            began = emitting.time_us()
            emitting.complete("scheduler", began - 100, 100, {"node": "a"}, category="io")
            emitting.complete("kernel", began - 50, 40, category="device", track="stream 7")
            emitting.flow_out("late arrow", 9, at=then)
            emitting.flow_in("late arrow", 9)
    trace = run.trace
    step, forward = (next(s for s in trace.spans if s.name == name) for name in ("step", "forward"))
    now, later = (next(e for e in trace.of("i") if e.name == name) for name in ("now", "then"))
    assert (now.cat, now.args["n"], now.args["p_idx"]) == ("test", 1, forward.id)
    assert later.args["p_idx"] == step.id
    assert step.ts_ns <= later.ts_ns <= step.end_ns
    assert later.tid != now.tid
    assert {e.name: dict(e.args) for e in trace.of("C")} == {
        "loss": {"value": 0.5},
        "losses": {"a": 1},
    }
    assert [(e.args["name"], e.args["value"]) for e in trace.of("M") if e.name == "CM"] == [
        *(("key", "value"), ("7", "3"), ("none", "None")),
    ]
    late, arrived = (next(e for e in trace.of(end) if e.name == "late arrow") for end in ("s", "f"))
    assert step.ts_ns <= late.ts_ns <= step.end_ns <= forward.ts_ns <= arrived.ts_ns
    (kernel,) = [s for s in trace.spans if s.name == "kernel"]
    assert (kernel.cat, kernel.dur_ns) == ("device", 40_000)
    assert kernel.tid not in {now.tid, later.tid}
    names = {e.tid: e.args["name"] for e in trace.of("M") if e.name == "thread_name"}
    assert names[kernel.tid] == "stream 7"
    (told,) = [s for s in trace.spans if s.name == "scheduler"]
    assert (told.cat, told.dur_ns, told.args["node"]) == ("io", 100_000, "a")
    assert trace.footer["args_sanitised"] == 1


@pytest.mark.parametrize("of_a_node", [False, True])
def test_what_is_known_only_afterwards_lies_between_the_spans_around_it(
    of_a_node: bool, traced: Traced
) -> None:
    everyone = ProfilerNode("", "")
    gate = emitting.Gate()
    gate.live = True

    def training(name: str, *, enabled: bool) -> emitting.TrainingState:
        node = ProfilerNode("pipeline", name, enabled=enabled)
        made = emitting.TrainingState(gate, node, everyone, "steps", 0, 100)
        made.recorded = True
        return made

    trainings = training("step", enabled=True), training("off", enabled=False)

    def record(number: int, began: int, ended: int) -> None:
        if of_a_node:
            for one in trainings:
                one.step, one._begun = number, began
                one._tell()
                one._close(ended)
        else:
            args = {"step": number}
            emitting.complete_between(
                "step", began, ended, args, category="pipeline", track="steps"
            )

    assert emitting.ticks() == 0
    record(7, 0, 5)
    with traced() as run:
        for number in range(3):
            with ai.data.item:
                pass
            began = emitting.ticks()
            with ai.compute.forward:
                pass
            with ai.compute.backward:
                ended = emitting.ticks()
            record(number, began, ended)
    trace = run.trace
    assert not [s for s in trace.spans if s.name == "off"]
    named = {name: [s for s in trace.spans if s.name == name] for name in ("item", "forward")}
    steps = [s for s in trace.spans if s.name == "step"]
    backwards = [s for s in trace.spans if s.name == "backward"]
    assert [s.args["step"] for s in steps] == [0, 1, 2]
    assert {(s.cat, s.args["p_idx"], s.level) for s in steps} == {("pipeline", 0, 1)}
    assert len({s.tid for s in steps} | {s.tid for s in backwards}) == 2
    for item, forward, backward, step in zip(*named.values(), backwards, steps, strict=True):
        assert item.end_ns <= step.ts_ns <= forward.ts_ns < forward.end_ns
        assert backward.ts_ns <= step.end_ns <= backward.end_ns


def test_spans_with_given_times_lie_on_the_track_that_is_asked_for(traced: Traced) -> None:
    where = {"category": "gpu.compute", "track": "stream 7"}
    with traced() as run:
        with ai.compute.forward:
            then = emitting.moment()
        at = then[0]
        emitting.complete_within(
            "inner", at + 2, at + 9, category="gpu.compute", track="other", of=then
        )
        emitting.complete_within("inner", at + 2, at + 5, {"n": 1}, of=then, **where)
        emitting.complete_within("outer", at + 1, at + 7, of=then, **where)
        emitting.complete_within("aside", at + 6, at + 9, of=then, **where)
        emitting.complete_within("backwards", at + 11, at + 10, of=(at, 0, 0, 0), **where)
    trace = run.trace
    at -= trace.header["time_base_us"] * 1000
    (forward,) = (s for s in trace.spans if s.name == "forward")
    tracks = {e.tid: e.args["name"] for e in trace.of("M") if e.name == "thread_name"}
    told = {(s.name, tracks[s.tid], s.ts_ns - at, s.dur_ns, s.args["p_idx"]) for s in trace.spans}
    assert told >= {
        ("inner", "other", 2, 7, forward.id),
        ("inner", "stream 7", 2, 3, forward.id),
        ("outer", "stream 7", 1, 6, forward.id),
        ("aside", "stream 7 2", 6, 3, forward.id),
        ("backwards", "stream 7", 11, 0, 0),
    }
    assert len(trace.spans) == 6


def test_nobody_else_uses_the_doors_of_the_core() -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(DOORS, path.read_text(encoding="utf-8"))
    }
    assert users == {"run/emitting.py"}
