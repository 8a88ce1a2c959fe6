"""The parts of every step against a slow reading of the rules, one nanosecond after the other."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import Job, Steps, measure

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
steps = st.lists(inner, min_size=5, max_size=9)


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
        found = [measure(rank.process) for rank in Job(open_traces([folder])).ranks]
    assert len(found) == len(traces)
    return [steps for steps in found if steps is not None]


@settings(max_examples=200)
@given(steps, st.integers(0, 99))
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
