"""The flame graph of random ranks against a look at each moment: whose it is, and in which frame."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from analysis.trace_lines import TraceLines
from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.report.figures.facts import turns_of
from dftrace_ai.analysis.report.figures.flame import PARTS, FlameTree
from dftrace_ai.analysis.steps import Job
from dftrace_ai.analysis.steps.roles import ROLES
from dftrace_ai.analysis.summary.report import reported
from dftrace_ai.page.palette import light

# No whole microseconds, in which neighbours may overlap.
UNIT = 1337
STEPS, EPOCHS, COLLECTIVES, PID = 0x40000000, 0x40000001, 0x50000000, 100


class Span(NamedTuple):
    """A span of the trace."""

    start: int
    end: int
    cat: str
    name: str
    tid: int


def crosses(one: Span, other: Span) -> bool:
    return one.start < other.start < one.end < other.end


def nesting(spans: list[Span]) -> list[Span]:
    """Those that do not cut one before them, and have no times of one."""
    kept: list[Span] = []
    for span in spans:
        if not any(
            crosses(span, other) or crosses(other, span) or span[:2] == other[:2] for other in kept
        ):
            kept.append(span)
    return kept


times = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 25)), max_size=12
).map(lambda drawn: [(start, start + length) for start, length in drawn])  # fmt: skip


def apart(drawn: list[tuple[int, int]], cat: str, name: str, tid: int) -> list[Span]:
    """Spans one behind the other."""
    kept: list[Span] = []
    for start, end in sorted(drawn):
        if not kept or kept[-1].end <= start:
            kept.append(Span(start, end, cat, name, tid))
    return kept


def whose(spans: list[Span], begin: int, end: int) -> Span | None:
    """The last to begin of those that go on then, of two the shorter one."""
    on = [span for span in spans if span.start <= begin and end <= span.end]
    return max(on, key=lambda span: (span.start, -span.end, span.tid), default=None)


@settings(max_examples=150, deadline=None)
@given(main=times, steps=times, epochs=times, collectives=times, beside=times)
def test_each_moment_of_the_main_thread_is_told_once(
    main: Any, steps: Any, epochs: Any, collectives: Any, beside: Any
) -> None:
    names = ("forward", "backward", "capture")
    on_main = nesting(
        [Span(*drawn, "compute", names[at % 3], PID) for at, drawn in enumerate(main)]
    )
    frames = [
        *apart(epochs, "pipeline", "epoch", EPOCHS),
        *apart(steps, "pipeline", "step", STEPS),
        *apart(beside, "pipeline", "step", STEPS + 7),  # of another thread that trains
    ]
    others = apart(collectives, "comm", "all_reduce", COLLECTIVES)
    if not on_main:
        return
    spans = [*on_main, *frames, *others]
    trace = TraceLines(PID, rank=0, world_size=1)
    for span in sorted(spans, key=lambda span: (span.end, -span.start)):
        parent = {"p_idx": 5, "level": 2} if span in others else {}
        times_ns = UNIT * span.start, UNIT * (span.end - span.start)
        trace.span(span.name, span.cat, *times_ns, tid=span.tid, **parent)
    trace.footer()
    tree = FlameTree()
    with tempfile.TemporaryDirectory() as folder:
        path = trace.write(Path(folder) / "t.pfw.gz")
        for member in Job(open_traces([path]), events=True):
            for turn, process in turns_of(member):
                tree.add(turn, process)
        report = reported([path])
    found = tree.graph().frames

    # Of two that train it is the first.
    around = [one for one in frames if not (steps and one.tid == STEPS + 7)]
    wanted: Counter[tuple[str, str]] = Counter()
    moments = sorted({time for span in spans for time in span[:2]})
    for begin, end in pairwise(moments):
        own = whose(on_main, begin, end)
        frame = whose(around, begin, end)
        what = own.name if own else f"not annotated in {frame.name if frame else 'ranks'}"
        wanted["ranks", what] += UNIT * (end - begin)
    for span in others:
        wanted["beside the ranks' main threads", span.name] += UNIT * (span.end - span.start)

    told: Counter[tuple[str, str]] = Counter()
    for one in found:
        above = root = one
        while root.parent >= 0:
            root = found[root.parent]
        if one.parent >= 0:
            above = found[one.parent]
        lies = f"not annotated in {above.name}" if one.name == "not annotated" else one.name
        told[root.name, lies] += one.self_ns
    assert +told == wanted
    wall = UNIT * (moments[-1] - moments[0])
    assert sum(ns for (root, _), ns in told.items() if root == "ranks") == wall
    # The table says the same.
    assert report.not_annotated is not None
    rows = {row.name: row.self_us for row in report.spans}
    totals: Counter[str] = Counter()
    for (_, name), ns in told.items():
        totals[name.split(" in ")[0]] += ns
    assert totals["not annotated"] == round(1000 * report.not_annotated.us)
    for name, us in rows.items():
        assert round(1000 * (us or 0)) == totals[str(name)]
    counts = Counter(span.name for span in spans)
    assert {row.name: row.count for row in report.spans} == counts
    for name, count in counts.items():
        assert sum(one.count for one in found if one.name == name) == count


def test_what_any_span_is_in_a_training_has_a_colour() -> None:
    parts = {PARTS.get(role, role) for role in ROLES}
    assert {f"part-{part}" for part in parts} <= light().keys()
