"""Every figure of every form of a summary, of random traces, against a slow computation in Python."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from analysis.summary.any_traces import Event, in_layout
from analysis.summary.plain_figures import (
    PlainProcess,
    Span,
    assert_alike,
    rows_by,
    rows_of_tree,
    told,
)
from analysis.trace_lines import TraceLines
from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai.analysis.summary.report import By, reported

NAMED = [
    *(("compute", "forward"), ("compute", "backward"), ("data", "item"), ("dataloader", "f.iter")),
    *(("dataloader", "f.block"), ("compute", ".block"), ("compute", "scan.yield")),
]
numbers = st.sampled_from([0, 1, 2, 10, "1", True, None, 1.5, "x"])
events = st.builds(
    lambda named, ph, tid, start, dur, args: (named, ph, tid, start, dur, args),
    st.sampled_from(NAMED),
    st.sampled_from("XXXXXXXXBiCM"),
    st.sampled_from([0, 1, 0x40000000]),
    st.integers(0, 60),
    st.integers(0, 20),
    st.dictionaries(st.sampled_from(["epoch", "step"]), numbers),
)
# How often all of them come one after the other: percentiles of many are not kept exactly.
processes = st.tuples(st.lists(events, max_size=12), st.sampled_from([1, 1, 1, 30]))
WHOLE: tuple[By, ...] = ("name", "category")
# Each trace is added up by one of the files' and one of the events' groups.
groups = st.tuples(
    st.sampled_from(["rank", "host", "process"]), st.sampled_from(["thread", "step", "epoch"])
)


def made(number: int, drawn: Any) -> PlainProcess:
    some, times = drawn
    pid = 100 + number
    rank = (0, 0, None)[number]
    found = [
        Event(ph, name, cat, pid, tid or pid, (start + 90 * turn) * 500, dur * 500, None, args)
        for turn in range(times)
        for (cat, name), ph, tid, start, dur, args in some
    ]
    return PlainProcess(pid, ("a", "b", "b")[number], rank, found)


def write(process: PlainProcess, folder: Path, codec: str, *, in_order: bool, cut: bool) -> None:
    if in_order:
        process.events.sort(key=lambda event: event.start_ns + event.dur_ns)
        process.__post_init__()
    half = len(process.events) // 2 if cut else len(process.events)
    for part, some in enumerate((process.events[:half], process.events[half:])):
        if part and not cut:
            continue
        rank = {} if process.rank is None else {"rank": process.rank}
        trace = TraceLines(process.pid, host=process.host, **rank)
        trace.lines += [in_layout(event, ascii=False, epoch=False) for event in some]
        suffix = ".part1" if part else ""
        trace.write(folder / f"t-{process.host}-{process.pid}{suffix}.pfw{codec}", 7)


def asked_for(span: Span) -> bool:
    return span.event.dur_ns >= 2000 or span.event.cat == "data"


@settings(max_examples=200, deadline=None)
@given(
    drawn=st.lists(processes, min_size=1, max_size=3),
    codec=st.sampled_from(["", ".gz", ".zst"]),
    in_order=st.booleans(),
    cut=st.booleans(),
    groups=groups,
)
def test_every_figure_of_every_form_is_that_of_a_slow_computation(
    drawn: Any, codec: str, in_order: bool, cut: bool, groups: Any
) -> None:
    forms, of_some = (*WHOLE, *groups), (WHOLE[cut], groups[0])
    job = [made(number, each) for number, each in enumerate(drawn)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for process in job:
            write(process, folder, codec, in_order=in_order, cut=cut)
        found = {by: told(reported([folder], by).spans) for by in forms}
        tree = told(reported([folder], "tree").tree or ())
        condition = "dur_us >= 2 or cat = 'data'"
        some = {by: told(reported([folder], by, where=condition).spans) for by in of_some}
    for by in forms:
        assert_alike(found[by], rows_by(job, by))
    for by, rows in some.items():
        assert_alike(rows, rows_by(job, by, asked_for))
    assert_alike(tree, rows_of_tree(job))
