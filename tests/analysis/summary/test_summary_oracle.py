"""Summaries of random traces, in every form, against a slow computation in Python."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from analysis.summary.any_traces import Event, in_layout, traces, write
from analysis.trace_lines import TraceLines
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import times

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary.choosing import summarise_chosen, summarise_tree
from dftrace_ai.analysis.summary.report import By, reported
from dftrace_ai.analysis.summary.rows import Row, TreeRow
from dftrace_ai.analysis.summary.table import summarise

FIGURES = ("count", "total_us", "self_us", "share", "wall_us", "mean_us", "min_us", "p50_us")
FIGURES += ("p95_us", "p99_us", "max_us")
Figures = dict[str, float | None]
BODIES = (".block", ".yield")
LANES = 0x40000000
FRAMES = {"step", "epoch", "evaluate"}
# So many durations are kept as they are; percentiles of more are as near as this.
MOST_EXACT = 128
NEAR = 0.0079


@dataclass
class Span:
    """A finished span, and what of its time is its own, by two readings of spans that overlap."""

    event: Event
    at: int
    own_by_name: int = 0
    own_in_tree: int = 0
    path: tuple[str, ...] = ()

    @property
    def start(self) -> int:
        return self.event.start_ns

    @property
    def end(self) -> int:
        return self.event.start_ns + self.event.dur_ns


@dataclass
class PlainProcess:
    """What one process has recorded."""

    pid: int
    host: str
    rank: int | None
    events: list[Event]
    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spans = [Span(event, at) for at, event in enumerate(self.events) if event.ph == "X"]
        tracks: defaultdict[tuple[int, int], list[Span]] = defaultdict(list)
        for span in self.spans:
            tracks[span.event.pid, span.event.tid].append(span)
        for (_, tid), track in tracks.items():
            own_by_name(track)
            own_in_tree(track)
            for span in track if tid >= LANES else ():
                frame_has_none(span)

    @property
    def taken_ns(self) -> int:
        """What the spans of the main thread take together, else of the thread with most."""
        threads: defaultdict[int, list[Span]] = defaultdict(list)
        for span in self.spans:
            if span.event.tid < LANES:
                threads[span.event.tid].append(span)
        taken = {tid: covered(track) for tid, track in threads.items()}
        return taken.get(self.pid, 0) or max(taken.values(), default=0)

    @property
    def wall_ns(self) -> int:
        timed = [event for event in self.events if event.ph != "M"]
        ends = [event.start_ns + (event.dur_ns if event.ph == "X" else 0) for event in timed]
        return max(ends) - min(event.start_ns for event in timed) if timed else 0


def covered(spans: Iterable[Span]) -> int:
    total, until = 0, -(2**63)
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0, span.end - max(span.start, until))
        until = max(until, span.end)
    return total


def frame_has_none(span: Span) -> None:
    """What `auto` lays beside a thread is around what the thread does."""
    outermost = span.event.parent in {None, 0}
    if outermost and span.event.cat == "pipeline" and span.event.name in FRAMES:
        for own in ("own_by_name", "own_in_tree"):
            if getattr(span, own) == span.event.dur_ns:
                setattr(span, own, 0)


def own_by_name(track: list[Span]) -> None:
    """A span lies in the next one, by the order of ends, that began before it."""
    track = sorted(track, key=lambda span: (span.end, -span.start))
    inside: defaultdict[int, list[Span]] = defaultdict(list)
    for at, inner in enumerate(track):
        for later in range(at + 1, len(track)):
            if track[later].start <= inner.start and track[later].event.dur_ns:
                if inner.event.dur_ns:
                    inside[later].append(inner)
                break
    for at, span in enumerate(track):
        span.own_by_name = span.event.dur_ns - covered(inside[at])


def own_in_tree(track: list[Span]) -> None:
    """A span lies in the last one to begin before it that encloses it."""
    track = sorted(track, key=lambda span: (span.start, -span.end, -span.at))
    inside: defaultdict[int, list[Span]] = defaultdict(list)
    for at, span in enumerate(track):
        named = f"{span.event.cat}.{span.event.name}"
        span.path = (named,)
        for before in range(at - 1, -1, -1):
            outer = track[before]
            if outer.end >= span.end and (outer.end > span.start or outer.end == span.end):
                span.path = (*outer.path, named)
                inside[before].append(span)
                break
    for at, span in enumerate(track):
        span.own_in_tree = span.event.dur_ns - covered(inside[at])


def quantile(times: list[int], share: float) -> float:
    place = Fraction(share) * (len(times) - 1)
    below = math.floor(place)
    above = min(below + 1, len(times) - 1)
    return float(times[below] + (times[above] - times[below]) * (place - below))


def figures_of(durations: list[int], own: int, wall: int) -> Figures:
    times = sorted(durations)
    p50, p95, p99 = (quantile(times, share) for share in (0.5, 0.95, 0.99))
    ns: dict[str, float] = {
        "total_us": sum(times),
        "self_us": own,
        "wall_us": wall,
        "mean_us": sum(times) / len(times),
        "min_us": times[0],
        "max_us": times[-1],
        "p50_us": p50,
        "p95_us": p95,
        "p99_us": p99,
    }
    told: Figures = {name: value / 1000 for name, value in ns.items()}
    return told | {"count": len(times), "share": own / wall if wall else None}


def added_up(
    processes: Iterable[PlainProcess],
    key: Callable[[PlainProcess, Span], Any],
    own: str,
    wall: Callable[[PlainProcess, Any], int] = lambda process, _: process.wall_ns,
    chosen: Callable[[Span], bool] = lambda _: True,
) -> dict[Any, Figures]:
    """The figures of each key; wall time is that of the processes in which it is."""
    durations: defaultdict[Any, list[int]] = defaultdict(list)
    owned: defaultdict[Any, int] = defaultdict(int)
    walls: defaultdict[Any, int] = defaultdict(int)
    for process in processes:
        there = set()
        for span in filter(chosen, process.spans):
            row = key(process, span)
            durations[row].append(span.event.dur_ns)
            owned[row] += getattr(span, own)
            there.add(row)
        for row in there:
            walls[row] += wall(process, row)
    return {row: figures_of(durations[row], owned[row], walls[row]) for row in durations}


def whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if type(value) is int else None


def group_of(process: PlainProcess, span: Span, by: str) -> str | None:
    """What the group of a span is called in a form."""
    rank, epoch = process.rank, whole(span.event.args.get("epoch"))
    step = whole(span.event.args.get("step"))
    name = " MainThread" if span.event.tid == process.pid else ""
    return {
        "name": None,
        "category": None,
        "rank": "-" if rank is None else str(rank),
        "host": process.host,
        "process": f"{process.host}:{process.pid}",
        "thread": f"{process.host}:{process.pid} {span.event.tid}{name}",
        "step": "-" if step is None else str(step) if epoch is None else f"{epoch}/{step}",
        "epoch": "-" if epoch is None else str(epoch),
    }[by]


def wall_of_group(process: PlainProcess, group: str | None, by: str) -> int:
    """From the first span of a group in a process to the last."""
    spans = [span for span in process.spans if group_of(process, span, by) == group]
    return max(span.end for span in spans) - min(span.start for span in spans)


def is_body(name: str) -> bool:
    return name.endswith(BODIES) and name not in BODIES


def rows_by(
    processes: list[PlainProcess], by: str, chosen: Callable[[Span], bool] | None = None
) -> dict[Any, Figures]:
    """The rows of a form: group, category, name, and whether of the bodies of loops."""
    ordered = chosen is not None or by in {"thread", "step", "epoch"}

    def key(process: PlainProcess, span: Span) -> tuple[Any, ...]:
        cat, name = span.event.cat, span.event.name
        shown = None if by == "category" else name
        return group_of(process, span, by), cat, shown, is_body(name)

    def wall(process: PlainProcess, row: tuple[Any, ...]) -> int:
        return wall_of_group(process, row[0], by)

    own = "own_in_tree" if ordered else "own_by_name"
    walls = {"wall": wall} if by in {"thread", "step", "epoch"} else {}
    choice = {"chosen": chosen} if chosen else {}
    return added_up(processes, key, own, **walls, **choice)


def rows_of_tree(processes: list[PlainProcess]) -> dict[Any, Figures]:
    return added_up(processes, lambda _, span: span.path, "own_in_tree")


def told(rows: Iterable[Row | TreeRow]) -> dict[Any, Figures]:
    """What a report says, as the functions above have it."""
    found: dict[Any, Figures] = {}
    for row in rows:
        tree = isinstance(row, TreeRow)
        key = row.path if tree else (row.group, row.cat, row.name, row.loop == "body")
        assert key not in found
        found[key] = {name: getattr(row, name) for name in FIGURES}
    return found


def assert_alike(
    found: dict[Any, Figures], wanted: dict[Any, Figures], names: Iterable[str] = FIGURES
) -> None:
    assert found.keys() == wanted.keys()
    for key, figures in wanted.items():
        for name in names:
            was, value = found[key][name], figures[name]
            if value is None or was is None:
                assert was is value, (key, name)
                continue
            count = figures["count"]
            assert count is not None
            rough = name in {"p50_us", "p95_us", "p99_us"} and count > MOST_EXACT
            near = math.isclose(was, value, rel_tol=NEAR if rough else 1e-9, abs_tol=1e-9)
            assert near, (key, name, was, value)


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


@pytest.mark.sampled
@settings(max_examples=times(200, 0.5))
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
        some = summarise_chosen(opened.files, opened.skipped, None, condition)
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
    *(("pipeline", "epoch"), ("pipeline", "evaluate"), ("pipeline", "train")),
]
numbers = st.sampled_from([0, 1, 2, 10, "1", True, None, 1.5, "x"])
events = st.builds(
    lambda *drawn: drawn,
    st.sampled_from(NAMED),
    st.sampled_from("XXXXXXXXBiCM"),
    st.sampled_from([0, 1, 0x40000000]),
    st.integers(0, 60),
    st.integers(0, 20),
    st.sampled_from([None, 0, 3]),
    st.dictionaries(st.sampled_from(["epoch", "step"]), numbers),
)
# How often all of them come one after the other: percentiles of many are not kept exactly.
processes = st.tuples(st.lists(events, max_size=12), st.sampled_from([1, 1, 1, 30]))
WHOLE: tuple[By, ...] = ("name", "category")
EVENT_GROUPS = {"thread", "step", "epoch"}
# Each trace is added up by one of the files' and one of the events' groups.
groups = st.tuples(
    st.sampled_from(["rank", "host", "process"]), st.sampled_from(["thread", "step", "epoch"])
)


def made(number: int, drawn: Any) -> PlainProcess:
    some, times = drawn
    pid = 100 + number
    rank = (0, 0, None)[number]
    found = [
        Event(ph, name, cat, pid, tid or pid, (start + 90 * turn) * 500, dur * 500, parent, args)
        for turn in range(times)
        for (cat, name), ph, tid, start, dur, parent, args in some
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


@pytest.mark.sampled
@settings(max_examples=times(200, 0.5))
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
        reports = {by: reported([folder], by) for by in forms}
        found = {by: told(report.spans) for by, report in reports.items()}
        tree = told(reported([folder], "tree").tree or ())
        condition = "dur_us >= 2 or cat = 'data'"
        some = {by: told(reported([folder], by, where=condition).spans) for by in of_some}
    for by in forms:
        assert_alike(found[by], rows_by(job, by))
        outside = reports[by].not_annotated
        known = [process for process in job if process.taken_ns] if by not in EVENT_GROUPS else []
        assert (outside is not None) == bool(known)
        if outside is not None:
            ns = sum(process.wall_ns - process.taken_ns for process in known)
            assert (outside.us, outside.processes) == (ns / 1000, len(known))
    for by, rows in some.items():
        assert_alike(rows, rows_by(job, by, asked_for))
    assert_alike(tree, rows_of_tree(job))
