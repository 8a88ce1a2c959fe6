"""Steps of loops over loaders, with evaluations and other threads, against a slow reading of the rules."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from analysis.steps.test_partition import GRAIN_NS, NAMES, START_NS, part_of
from analysis.trace_lines import TIME_BASE_US, TraceLines
from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import Job, Steps, measure, timeline

Name = tuple[str, str]
ITER, BLOCK = ("dataloader", "fetch.iter"), ("dataloader", "fetch.block")
OPTIMIZER, FORWARD = ("compute", "step"), ("compute", "forward")
EVALUATE = ("pipeline", "evaluate")
# What other threads do; the part that it is hidden time of. A backward of theirs would be learning.
ELSEWHERE = {
    ("data", "item"): "data",
    ("data", "preprocess.collate"): "data",
    ("comm", "all_reduce"): "comm",
    ("checkpoint", "capture"): "checkpoint",
    ("compute", "forward"): "forward",
    ("device", "transfer"): "transfer",
}
# Nested loops within a step would be loops of their own, and the optimizer ends each step.
INSIDE = sorted(set(NAMES) - {ITER, BLOCK, EVALUATE, OPTIMIZER, ("pipeline", "train")})

# When each begins and how long it is: they may lie in each other, and cut each other.
bodies = st.lists(
    st.tuples(st.sampled_from(INSIDE), st.integers(0, 12), st.integers(1, 9)), max_size=5
)
steps = st.tuples(st.integers(1, 4), bodies, st.integers(0, 2))
evaluations = st.sampled_from(["none", "annotated", "a loop", "within a step"])
epochs = st.tuples(st.lists(steps, min_size=2, max_size=4), evaluations, st.booleans())
others = st.lists(
    st.tuples(st.sampled_from(sorted(ELSEWHERE)), st.integers(0, 150), st.integers(1, 20)),
    max_size=8,
)


class Span(NamedTuple):
    name: Name
    begin: int
    end: int
    args: dict[str, int]


class Wanted(NamedTuple):
    """A step: where it is, and whether it is the first of its loop."""

    begin: int
    end: int
    first: bool


class Program:
    """What the thread that trains does, as spans in the order in which they begin."""

    def __init__(self) -> None:
        self.now = 0
        self.spans: list[Span] = []
        self.steps: list[Wanted] = []

    def say(self, name: Name, begin: int, end: int, **args: int) -> None:
        self.spans.append(Span(name, begin, end, args))

    def epoch(self, number: int, drawn: Any) -> None:
        each, evaluation, saves = drawn
        for count, (wait, body, rest) in enumerate(each, 1):
            begin = self.now
            loop = {"p_idx": 1000 + number, "count": count}
            self.say(ITER, begin, begin + wait, **loop)
            body_at = begin + wait
            ends = [at + length for _, at, length in body]
            inside = max(ends, default=0)
            for name, at, length in body:
                self.say(name, body_at + at, body_at + at + length)
            now = body_at + inside
            if evaluation == "within a step" and count == 2:
                self.say(EVALUATE, now, now + 5)
                self.say(FORWARD, now + 1, now + 3)
                now += 5
            self.say(OPTIMIZER, now, now + 2)
            now += 2 + rest
            self.say(BLOCK, body_at, now, **loop)
            self.steps.append(Wanted(begin, now, count == 1))
            self.now = now
        if saves:
            self.say(("checkpoint", "capture"), self.now + 1, self.now + 4)
            self.now += 5
        if evaluation in {"annotated", "a loop"}:
            self.evaluation(number, annotated=evaluation == "annotated")

    def evaluation(self, number: int, *, annotated: bool) -> None:
        begin = self.now
        self.now += annotated
        for count in (1, 2, 3):
            loop = {"p_idx": 2000 + number, "count": count}
            self.say(ITER, self.now, self.now + 1, **loop)
            self.say(BLOCK, self.now + 1, self.now + 5, **loop)
            self.say(FORWARD, self.now + 1, self.now + 4)
            self.now += 5
        self.now += annotated
        if annotated:
            self.say(EVALUATE, begin, self.now)

    def parts(self, low: int, high: int) -> Counter[str]:
        """What each moment is, by the spans that hold it."""
        ordered = sorted(self.spans, key=lambda span: (span.begin, -span.end))
        until = [span.end for span in ordered]
        for at, span in enumerate(ordered):
            # One that begins inside of it and ends later takes the rest of its time.
            for later in ordered[at + 1 :]:
                if later.begin < span.end < later.end:
                    until[at] = later.begin
                    break
        found: Counter[str] = Counter()
        for moment in range(low, high):
            holding = [
                span.name
                for span, end in zip(ordered, until, strict=True)
                if span.begin <= moment < end
            ]
            found[part_of(holding)] += 1
        return found

    def part_at(self, moment: int) -> str:
        (part,) = self.parts(moment, moment + 1)
        return part


def measured(program: Program, elsewhere: list[list[Span]]) -> Steps:
    trace = TraceLines(1)
    # What begins together is told apart by its numbers: the first one written is the outer one.
    for span in sorted(program.spans, key=lambda span: (span.begin, -span.end)):
        cat, name = span.name
        begin = START_NS + span.begin * GRAIN_NS
        trace.span(name, cat, begin, (span.end - span.begin) * GRAIN_NS, **span.args)
    for thread, spans in enumerate(elsewhere, 50):
        for span in spans:
            begin, length = START_NS + span.begin * GRAIN_NS, (span.end - span.begin) * GRAIN_NS
            trace.span(span.name[1], span.name[0], begin, length, tid=thread)
    with tempfile.TemporaryDirectory() as folder:
        trace.write(Path(folder) / "t-host-1.pfw")
        (rank,) = Job(open_traces([folder])).ranks
        found = measure(rank.process)
    assert found is not None
    return found


def at(ns: int) -> int:
    return (ns - TIME_BASE_US * 1000 - START_NS) // GRAIN_NS


@settings(max_examples=200, deadline=None)
@given(st.lists(epochs, min_size=2, max_size=3), st.lists(others, max_size=2))
def test_steps_of_loops_are_what_each_moment_says(drawn: Any, beside: Any) -> None:
    program = Program()
    for number, epoch in enumerate(drawn):
        program.epoch(number, epoch)
    elsewhere = [
        [Span(name, begin, begin + length, {}) for name, begin, length in thread]
        for thread in beside
    ]
    found = measured(program, elsewhere)
    # Of many spans some are looked at at a time, one after the other where they cut each other.
    with (
        mock.patch.object(timeline, "SPANS_AT_ONCE", 3),
        mock.patch.object(timeline, "_nested", return_value=None),
    ):
        stacked = measured(program, elsewhere)
    for name in ("start_ns", "end_ns", "part", "span"):
        whole, cut = (getattr(one.timeline, name).tolist() for one in (found, stacked))
        assert whole == cut, name
    assert (found.found_by, found.accumulation) == ("loader blocks", 1)
    windows = zip(found.start_ns.tolist(), found.end_ns.tolist(), found.first.tolist(), strict=True)
    assert [Wanted(at(low), at(high), first) for low, high, first in windows] == program.steps
    for number, step in enumerate(program.steps):
        wanted = program.parts(step.begin, step.end)
        inside = wanted.pop("evaluation", 0)
        assert int(found.time_ns[number]) == (step.end - step.begin - inside) * GRAIN_NS
        parts = {part: int(ns[number]) // GRAIN_NS for part, ns in found.parts.items()}
        assert {part: ns for part, ns in parts.items() if ns} == dict(wanted)
    hidden: Counter[str] = Counter()
    for step in program.steps:
        for moment in range(step.begin, step.end):
            busy = {ELSEWHERE[s.name] for t in elsewhere for s in t if s.begin <= moment < s.end}
            hidden.update(busy - {program.part_at(moment)} if busy else ())
    assert {part: ns // GRAIN_NS for part, ns in found.hidden_ns.items() if ns} == dict(hidden)
