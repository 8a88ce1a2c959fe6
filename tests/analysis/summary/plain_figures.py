"""Summaries computed slowly, one span after the other: what the rows of each form have to say."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from analysis.summary.any_traces import Event

from dftrace_ai.analysis.summary.report import Row
from dftrace_ai.analysis.summary.rows import TreeRow

FIGURES = ("count", "total_us", "self_us", "share", "wall_us", "mean_us", "min_us", "p50_us")
FIGURES += ("p95_us", "p99_us", "max_us")
Figures = dict[str, float | None]
BODIES = (".block", ".yield")
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
        for track in tracks.values():
            own_by_name(track)
            own_in_tree(track)

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
