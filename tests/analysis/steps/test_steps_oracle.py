"""The steps of a training and their parts against slow readings of the rules, one moment after the other."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sampling import times

from dftrace_ai import _reader
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import Job, Steps, measure, measure_blocked, timeline

# Names that the vocabulary has, and what they are in a step.
NAMES = {
    ("dataloader", "fetch.iter"): "wait",
    ("dataloader", "fetch.block"): "holds",
    ("pipeline", "train"): "holds",
    ("pipeline", "evaluate"): "evaluation",
    ("data", "item"): "data",
    ("data", "preprocess.collate"): "data",
    ("data", "data.io.read"): "data",
    ("compute", "forward"): "forward",
    ("compute", "backward"): "backward",
    ("compute", "step"): "optimizer",
    ("compute", "gelu"): "compute",
    ("comm", "all_reduce"): "comm",
    ("device", "transfer"): "transfer",
    ("checkpoint", "capture"): "checkpoint",
    ("mine", "whatever"): "other",
}
OWN = {"evaluation", "checkpoint", "comm", "transfer"}
START_NS = 1_123_213_646_764_003
# So far apart that no two boundaries are neighbours by rounding.
GRAIN_NS = 10

# A span: its name, and what lies in it, each with the time that passes before it; and what is left.
gaps = st.integers(0, 4)
names = st.sampled_from(sorted(NAMES))
spans = st.recursive(
    st.tuples(names, st.just([]), st.integers(1, 4)),
    lambda span: st.tuples(names, st.lists(st.tuples(gaps, span), max_size=3), gaps),
    max_leaves=8,
)
inner = st.lists(st.tuples(gaps, spans), max_size=3)
marked_steps = st.lists(inner, min_size=5, max_size=9)


def laid_out(children, at, out):
    """Writes spans one after the other; returns where the last ends."""
    for gap, (name, inside, rest) in children:
        begin = at + gap
        end = laid_out(inside, begin, out) + rest
        if end > begin:
            out.append((name, begin, end, len(out)))
        at = end
    return at


def part_of(names):
    """What an instant is, by the spans that hold it, the outermost first."""
    part = "none"
    for name in names:
        role = NAMES[name]
        if role == "holds" or (role == "compute" and part != "none") or part in OWN:
            continue
        if part == "wait" and role not in {"transfer", "comm"}:
            continue
        part = role
    return part


def oracle(events, begin, end):
    found = {}
    for at in range(begin, end):
        # What begins together or ends together: the longer holds the shorter, the first one the next.
        holding = sorted(
            (e for e in events if e[1] <= at < e[2]), key=lambda e: (e[1], -e[2], -e[3])
        )
        part = part_of([name for name, *_ in holding])
        found[part] = found.get(part, 0) + 1
    return found


def measured(*traces: TraceLines) -> list[Steps]:
    with tempfile.TemporaryDirectory() as folder:
        for trace in traces:
            trace.write(Path(folder) / f"t-{trace.pid}.pfw")
        processes = [rank.process for rank in Job(open_traces([folder])).ranks]
    assert len(processes) == len(traces)
    found = []
    for process in processes:
        steps, blocked = measure(process), measure_blocked(process)
        assert (steps is None) == (blocked is None)
        if steps and blocked:
            found.append(steps)
            for name in ("start_ns", "end_ns", "time_ns", "number"):
                assert getattr(steps, name).tolist() == getattr(blocked, name).tolist()
            assert steps.parts["comm"].tolist() == blocked.parts["comm"].tolist()
    return found


def test_spans_nest_where_none_cuts_another_or_is_as_good_as_behind_it() -> None:
    made = random.Random(1)
    for _ in range(300):
        near = made.randrange(3)
        spans = [(at, at + made.randrange(1, 9)) for at in made.choices(range(14), k=5)]
        spans.sort(key=lambda span: (span[0], -span[1]))
        wanted = all(
            end <= other or (end >= other_end and end - other > near)
            for number, (_, end) in enumerate(spans)
            for other, other_end in spans[number + 1 :]
        )
        starts, ends = np.array(spans).T
        found = _reader.nest(np.ascontiguousarray(starts), np.ascontiguousarray(ends), near)
        assert found == wanted
    with pytest.raises(ValueError, match="as many ends"):
        _reader.nest(np.zeros(2, np.int64), np.zeros(3, np.int64), 0)


def test_pairs_are_counted_as_they_come() -> None:
    made = random.Random(2)
    pairs = [(made.choice([5, -1, 2**62]), made.choice([0, 7, 255])) for _ in range(500)]
    first, second = (np.array(column) for column in zip(*pairs, strict=True))
    found = _reader.counted_pairs(first, second.astype(np.uint8))
    assert found == [(*pair, count) for pair, count in Counter(pairs).items()]
    with pytest.raises(ValueError, match="as many numbers"):
        _reader.counted_pairs(first, second.astype(np.uint8)[:-1])


@pytest.mark.sampled
@settings(max_examples=times(200, 0.5))
@given(marked_steps, st.integers(0, 99))
def test_every_part_is_what_each_nanosecond_says(bodies, seed) -> None:
    exact, rounded = TraceLines(1), TraceLines(2)
    at, marks, events = 0, [], []
    for body in bodies:
        begin = at + 1
        mine: list = []
        end = laid_out(body, begin + 1, mine) + 1
        marks.append((begin, end))
        events.append(mine)
        at = end
    wrong = random.Random(seed)
    begins: dict[int, int] = {}
    count = 0
    for (begin, end), mine in zip(marks, events, strict=True):
        whole = (("pipeline", "step"), begin, end, 0)
        for name, low, high, _ in [whole, *reversed(mine)]:
            cat, word = name
            low_ns, high_ns = START_NS + low * GRAIN_NS, START_NS + high * GRAIN_NS
            exact.span(word, cat, low_ns, high_ns - low_ns)
            if name != ("pipeline", "step"):
                # What begins at one moment is written with one number; its end is a sum of two.
                low_ns += begins.setdefault(low, wrong.randint(-1, 1))
                high_ns += wrong.randint(-1, 1)
                count += 1
            rounded.span(word, cat, low_ns, high_ns - low_ns)
    found, blurred = measured(exact, rounded)
    # An optimizer in every second of them, and several are one step.
    assume(found.accumulation == 1)
    assert found.found_by == blurred.found_by == "step spans"
    for number, ((begin, end), mine) in enumerate(zip(marks, events, strict=True)):
        low = (int(found.start_ns[number]) - TIME_BASE_US * 1000 - START_NS) // GRAIN_NS
        wanted = oracle(mine, low, end)
        inside = wanted.pop("evaluation", 0)
        parts = {
            part: int(ns[number]) // GRAIN_NS for part, ns in found.parts.items() if ns[number]
        }
        assert parts == wanted
        assert int(found.time_ns[number]) == (end - low - inside) * GRAIN_NS
        # Which of two that begin and end together holds the other is lost by rounding.
        extents = [(low, high) for _, low, high, _ in mine]
        if len(set(extents)) < len(extents):
            continue
        # Rounding moves no more time than it moved the ends of spans.
        for part, ns in blurred.parts.items():
            assert ns[number] >= 0
            if int(blurred.start_ns[number]) == int(found.start_ns[number]):
                assert abs(int(ns[number]) - wanted.get(part, 0) * GRAIN_NS) <= 6 * count + 6


@pytest.mark.parametrize("timestamps", ["relative", "epoch_us"])
def test_neighbours_that_rounding_lets_overlap_follow_each_other(timestamps: str) -> None:
    """Each of ten spans seems to begin within the one before it; none is lost to it."""
    unit, late = (1000, 1000) if timestamps == "epoch_us" else (1, 1)
    trace = TraceLines(timestamps=timestamps)
    at = 1_123_213_646_764_000
    for step in range(4):
        begin = at + step * 100_000 * unit
        trace.span("step", "pipeline", begin, 90_000 * unit)
        for number in range(8):
            name = ("forward", "backward")[number % 2]
            trace.span(name, "compute", begin + number * 10_000 * unit, 10_000 * unit + late)
    (found,) = measured(trace)
    for step in range(4):
        forward, backward = found.parts["forward"][step], found.parts["backward"][step]
        assert abs(int(forward) - 40_000 * unit) <= 8 * late
        assert abs(int(backward) - 40_000 * unit) <= 8 * late
        assert int(found.time_ns[step]) == 90_000 * unit


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


def written(program: Program, elsewhere: list[list[Span]]) -> TraceLines:
    trace = TraceLines(1)
    # What begins together is told apart by its numbers: the first one written is the outer one.
    ordered = sorted(program.spans, key=lambda span: (span.begin, -span.end))
    for thread, spans in enumerate([ordered, *elsewhere], 49):
        for span in spans:
            begin, length = START_NS + span.begin * GRAIN_NS, (span.end - span.begin) * GRAIN_NS
            tid = thread if spans is not ordered else None
            trace.span(span.name[1], span.name[0], begin, length, tid=tid, **span.args)
    return trace


def at(ns: int) -> int:
    return (ns - TIME_BASE_US * 1000 - START_NS) // GRAIN_NS


@pytest.mark.sampled
@settings(max_examples=times(200, 0.5))
@given(st.lists(epochs, min_size=2, max_size=3), st.lists(others, max_size=2))
def test_steps_of_loops_are_what_each_moment_says(drawn: Any, beside: Any) -> None:
    program = Program()
    for number, epoch in enumerate(drawn):
        program.epoch(number, epoch)
    elsewhere = [
        [Span(name, begin, begin + length, {}) for name, begin, length in thread]
        for thread in beside
    ]
    trace = written(program, elsewhere)
    (found,) = measured(trace)
    # Of many spans some are looked at at a time.
    with mock.patch.object(timeline, "SPANS_AT_ONCE", 3):
        (in_stretches,) = measured(trace)
    for name in ("start_ns", "end_ns", "part", "span"):
        whole, cut = (getattr(one.timeline, name).tolist() for one in (found, in_stretches))
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
