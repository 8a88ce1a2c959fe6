"""Summaries of random traces, in every form, against a slow computation in Python."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from analysis.summary.any_traces import Event, in_layout, traces, write
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

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary.choosing import summarise_chosen, summarise_tree
from dftrace_ai.analysis.summary.report import By, reported
from dftrace_ai.analysis.summary.rows import Row
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.where import where_of

MOST_NS = 4_600_000_000_000_000_000
NOUNS = {"B": "unfinished span", "i": "instant", "C": "counter", "M": "metadata"}
NOUNS |= dict.fromkeys("sf", "flow")


def refuse(text: str) -> None:
    raise ValueError(text)


def number_of(value: Any) -> Any:
    """A number that stands in a text is one."""
    if not isinstance(value, str) or value != value.strip():
        return value
    try:
        number = json.loads(value, parse_float=Decimal, parse_constant=refuse)
    except ValueError:
        return None
    return number if type(number) in {int, Decimal} else None


def nanoseconds(value: Any, *, of_a_moment: bool = False) -> int | None:
    """None for what is no number; what is beyond all times is the last moment, and no length."""
    number = number_of(value)
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        return None
    ns = math.floor(abs(Fraction(number)) * 1000 + Fraction(1, 2))
    if ns > MOST_NS:
        if not of_a_moment:
            return None
        ns = MOST_NS
    return -ns if number < 0 else ns


def letter(ph: Any) -> Any:
    """dftracer's numbers of phases."""
    numbered = type(ph) is int and 1 <= ph <= 4
    return "XCiM"[ph - 1] if numbered else ph


def event_in(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None where it holds none that may be read."""
    try:
        event: dict[str, Any] = json.loads(
            line.strip().removesuffix(b",").decode(), parse_float=Decimal, parse_constant=refuse
        )
        json.dumps(event, ensure_ascii=False, default=str).encode()
        well = (
            isinstance(event["name"], str)
            and isinstance(letter(event["ph"]), str)
            and b"[" * 201 not in line
        )
    except (ValueError, KeyError, TypeError):
        return None
    return event if well else None


@dataclass
class PlainReading:
    """What is in the lines of a file."""

    lines: list[bytes]
    spans: list[Event] = field(default_factory=list)
    others: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    events: int = 0
    unreadable: int = 0

    def __post_init__(self) -> None:
        for at, line in enumerate(self.lines):
            if line.strip() in {b"", b"[", b"]"}:
                continue
            event = event_in(line)
            if event is None:
                self.unreadable += 1
            elif (letter(event["ph"]), event["name"] == "CM") != ("M", False):
                self.events += 1
                self._add(at, event)

    def _add(self, at: int, event: dict[str, Any]) -> None:
        ph, name, cat = letter(event["ph"]), event["name"], event.get("cat", "")
        cat = cat if isinstance(cat, str) else ""
        if ph != "X":
            self.others[NOUNS.get(ph, f"ph {ph!r}"), cat, name] += 1
            return
        dur, start = nanoseconds(event.get("dur")), nanoseconds(event.get("ts"), of_a_moment=True)
        if dur is None or dur < 0:
            self.unreadable += 1
            return
        given = [number_of(event.get(key)) for key in ("pid", "tid")]
        pid, tid = (number if isinstance(number, int) else 0 for number in given)
        # One that has no place in time lies in no other.
        track = tid if start is not None else (1 << 70) + at
        self.spans.append(Event(ph, name, cat, pid, track, start or 0, dur, None, {}))


@settings(max_examples=200, deadline=None)
@given(lines=traces(), codec=st.sampled_from(["", ".gz", ".zst"]), size=st.integers(1, 30))
def test_of_any_lines_the_figures_are_those_of_a_plain_reading(
    lines: list[bytes], codec: str, size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = summarise([write(lines, Path(folder), codec, size)])
    truth = PlainReading(lines)
    wanted = rows_by([PlainProcess(0, "", None, truth.spans)], "name")
    assert_alike(told(found.spans), wanted, ("count", "total_us", "self_us", "min_us", "max_us"))
    assert (found.events, found.unreadable_lines) == (truth.events, truth.unreadable)
    assert {(row.kind, row.cat, row.name): row.count for row in found.others} == truth.others


@settings(max_examples=40, deadline=None)
@given(lines=traces(), codec=st.sampled_from(["", ".gz"]), size=st.integers(1, 30))
def test_the_tree_and_what_is_chosen_agree_with_the_plain_summary(
    lines: list[bytes], codec: str, size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(lines, Path(folder), codec, size)
        plain = summarise([path])
        opened = open_traces([path])
        chosen = summarise_chosen(opened.files, opened.skipped, None)
        condition = "cat = 'compute' and dur_us >= 2 or name like 'it%'"
        some = summarise_chosen(opened.files, opened.skipped, None, where_of(condition))
        _, tree = summarise_tree(opened.files, opened.skipped)

    def apart_from_self(row: Row) -> dict[str, Any]:
        return {
            name: value for name, value in vars(row).items() if name not in {"self_us", "share"}
        }

    assert list(map(apart_from_self, chosen.spans)) == list(map(apart_from_self, plain.spans))
    assert chosen.others == plain.others
    # What is said of the files is found by either way to read them.
    for fact in ("files", "events", "unreadable_lines", "reach", "notes", "skipped"):
        assert getattr(chosen, fact) == getattr(plain, fact), fact
    assert all(row.path[:-1] in {other.path for other in tree} or not row.path[1:] for row in tree)
    own: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in tree:
        own[row.cat, row.name] += row.self_us
    assert own == pytest.approx({(row.cat, row.name): row.self_us for row in chosen.spans})
    expected = Counter(
        (span.cat, span.name)
        for span in PlainReading(lines).spans
        if (span.cat == "compute" and span.dur_ns >= 2000) or span.name.startswith("it")
    )
    assert {(row.cat, row.name): row.count for row in some.spans} == expected


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


def write_parts(
    process: PlainProcess, folder: Path, codec: str, *, in_order: bool, cut: bool
) -> None:
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
            write_parts(process, folder, codec, in_order=in_order, cut=cut)
        found = {by: told(reported([folder], by).spans) for by in forms}
        tree = told(reported([folder], "tree").tree or ())
        condition = "dur_us >= 2 or cat = 'data'"
        some = {by: told(reported([folder], by, where=condition).spans) for by in of_some}
    for by in forms:
        assert_alike(found[by], rows_by(job, by))
    for by, rows in some.items():
        assert_alike(rows, rows_by(job, by, asked_for))
    assert_alike(tree, rows_of_tree(job))
