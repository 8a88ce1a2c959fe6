"""Where the time goes: spans merged by their path, from the outermost span inwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias
from zlib import crc32

import numpy as np

from dftrace_ai.analysis.lines.words import phase_name, place_text
from dftrace_ai.analysis.reading.clock_faults import LATEST_NS
from dftrace_ai.analysis.reading.reach import NOWHERE, Reach, joined
from dftrace_ai.analysis.reading.stack_lines import has_samples
from dftrace_ai.analysis.report.figures.facts import KINDS, Turn, briefly_named, rows_of
from dftrace_ai.analysis.report.model import FlameFrame, FlameGraph, RankStackFigures, StepRange
from dftrace_ai.analysis.steps.roles import DATA_WORK, NO_PART, role_of
from dftrace_ai.analysis.steps.spans import column_of, places
from dftrace_ai.analysis.steps.timeline import PART_CODE
from dftrace_ai.analysis.track_order import FIRST_LANE
from dftrace_ai.analysis.tracks import may_be_frames, parents_of, places_of, track_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dftrace_ai.analysis.lines.carrying import Sampled
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Process, Rank, Steps
    from dftrace_ai.analysis.steps.roles import Role

MOST_FRAMES: Final = 1500
RANGES: Final = 16
"""Of steps, into which samples are told."""

# The part of a step that a role has the colour of, where it is called otherwise.
PARTS: Final[dict[Role, str]] = {
    **dict.fromkeys(sorted(NO_PART), "other"),
    **dict.fromkeys(sorted(DATA_WORK), "data"),
    "garbage": "other",
    "gpu_compute": "gpu",
    "gpu_comm": "comm",
    "gpu_transfer": "transfer",
}
CATEGORIES: Final = "abcdef"

MOST_NS: Final = 2**63 - 1
NONE: Final = np.zeros(0, np.int64)

# In place of a parent.
MAIN: Final = -1
BESIDE: Final = -2
BESIDE_RANKS: Final = "beside the ranks' main threads"
NOT_ANNOTATED: Final = ("", "not annotated")

NO_TURN: Final = Turn(0, (0, 0, 0), (0, 0))
"""In place of a turn, of what is of one rank alone."""

Seen: TypeAlias = tuple[Turn, int]
"""In which process a path was first, and the number of its name there: the order of siblings."""


def part_of_span(cat: str, name: str) -> str:
    """Return what colours spans: the part of a step that they are, or one of their category."""
    role = role_of(cat, name)
    if role == "other":
        role = role_of(cat, name, "kineto")
    if role != "other":
        return PARTS.get(role, role)
    if not cat:
        return "unnamed"
    number = crc32(cat.encode("utf-8", "surrogatepass")) % len(CATEGORIES)
    return f"category-{CATEGORIES[number]}"


@dataclass
class _Path:
    """A node of the tree of paths."""

    cat: str
    name: str
    parent: int
    depth: int
    seen: Seen
    count: int = 0
    total: int = 0
    own: int = 0
    part: str | None = None  # where it is not known by its names
    range_ns: Integers | None = None  # of samples, by ranges of steps

    def add_ranges(self, range_ns: Integers) -> None:
        self.range_ns = range_ns if self.range_ns is None else self.range_ns + range_ns


def _together(start_ns: Integers, end_ns: Integers) -> tuple[Integers, Integers]:
    """Return from when to when any of some spans goes on, which come by their start."""
    reach = np.maximum.accumulate(end_ns)
    begins = np.flatnonzero(np.concatenate([[True], start_ns[1:] > reach[:-1]]))
    return start_ns[begins], reach[np.append(begins[1:], len(reach)) - 1]


@dataclass
class _Spans:
    """The spans of a process, and what is around each: a span, else `MAIN` or `BESIDE`."""

    track: Integers
    start: Integers
    end: Integers
    label: Integers
    parents: Integers
    own: Integers
    near_ns: int

    def main_thread(self, pid: int) -> int | None:
        """Return the thread whose time is told: as `Totals::taken_by_main` does."""
        outer = (self.parents < 0) & (self.track < FIRST_LANE) & (self.end > self.start)
        taken: dict[int, int] = {}
        for tid in np.unique(self.track[outer]).tolist():
            those = outer & (self.track == tid)
            begins, ends = _together(self.start[those], self.end[those])
            taken[tid] = int((ends - begins).sum())
        return pid if taken.get(pid) else max(taken, key=taken.__getitem__, default=None)

    def take_frames(self, frames: Integers) -> Integers:
        """Leave frames no time of their own; returns which of these are some."""
        lasts = self.end > self.start
        frames = frames & lasts
        frames[self.parents[(self.parents >= 0) & lasts]] = False
        self.own[frames] = 0
        return frames

    def lay_around(self, main: int, frames: Integers, reach: Reach, label: int) -> _Spans:
        """Lay frames around the spans of a thread, and what is not annotated between these.

        It is cut where a frame begins or ends, and each piece lies in the innermost frame.
        """
        # Of further threads that train frames have tracks with the next numbers.
        for code in np.unique(self.label[frames]).tolist():
            alike = frames & (self.label == code)
            frames = frames & ~(alike & (self.track != self.track[alike].min()))
        rows, on_main = np.flatnonzero(frames), self.track == main
        outer = on_main & (self.parents < 0)
        begins, ends = _together(self.start[outer], self.end[outer])
        free, until = np.append(reach[0], ends), np.append(begins, reach[1])
        edges = [free, until, self.start[rows], self.end[rows]]
        # They lie in order but for where they are put together, and are hashed by `np.unique`.
        edge = np.sort(np.concatenate(edges).clip(*reach), kind="stable")
        edge = edge[np.append(True, edge[1:] > edge[:-1])]
        empty = edge[1:] <= until[np.searchsorted(free, edge[:-1], side="right") - 1]
        start, end = edge[:-1][empty], edge[1:][empty]
        self.parents[~on_main & (self.parents < 0)] = BESIDE
        inner = self._innermost(rows, 0, start, end)[len(rows) :]
        both = np.concatenate([rows, np.flatnonzero(on_main)])
        self.parents[both] = self._innermost(both, self.near_ns)
        return _Spans(
            np.append(self.track, np.full(len(start), main)),
            np.append(self.start, start),
            np.append(self.end, end),
            np.append(self.label, np.full(len(start), label, self.label.dtype)),
            np.append(self.parents, inner),
            np.append(self.own, end - start),
            self.near_ns,
        )

    def _innermost(self, rows: Integers, near_ns: int, *more: Integers) -> Integers:
        """Return which of some spans is around each of them, and around further times."""
        start, end = (
            np.append(own[rows], further)
            for own, further in zip((self.start, self.end), more or (NONE, NONE), strict=True)
        )
        same = np.zeros(len(start), np.int64)
        order = track_order(same, start, end, np.arange(len(start)))
        found = parents_of(same, start[order], end[order], near_ns)
        around = np.full(len(start), MAIN, self.parents.dtype)
        inner = np.flatnonzero(found >= 0)
        around[order[inner]] = rows[order[found[inner]]]
        return around


def stack_figures(rank: Rank, steps: Steps, most: int = MOST_FRAMES) -> RankStackFigures | None:
    """Return the stacks of a rank and its workers by part of the steps; None without samples."""
    if not has_samples(rank.process.spans.columns):
        return None
    # Late: most traces hold none.
    from dftrace_ai.analysis.lines.rank_stacks import RankStacks

    stacks = RankStacks.of(rank, steps)
    if stacks is None:
        return None
    cuts = np.linspace(0, len(steps), min(RANGES, len(steps)) + 1).astype(int)
    tree = FlameTree()
    for phase, sampled in stacks.phases(once=True):
        part = phase if phase in PART_CODE else "data"
        tree.add_samples(part, phase_name(phase), sampled, steps.start_ns[cuts[1:-1]])
    numbers = steps.number
    ranges = [
        StepRange(int(numbers[first]), int(numbers[last - 1]), int(last - first))
        for first, last in pairwise(cuts.tolist())
    ]
    graph = replace(tree.graph(most), counts="sample")
    return RankStackFigures(rank.process.number, graph, ranges, tree.range_ns)


class FlameTree:
    """The paths of some processes; those of others are merged into it in any order."""

    def __init__(self) -> None:
        # Of the frames of the last graph, where they are of samples.
        self.range_ns: list[list[int]] = []
        self._paths: list[_Path] = []
        self._numbers: dict[tuple[int, str, str], int] = {}

    def add(self, turn: Turn, process: Process) -> None:
        """Add the spans of a process."""
        pieces: list[dict[str, Integers]] = []
        labels: list[tuple[str, str]] = []
        reach = NOWHERE
        for columns, mask in rows_of(process):
            timed = (columns.start_ns >= 0) & (columns.start_ns < LATEST_NS)
            timed &= mask & (columns.dur_ns < LATEST_NS)
            rows = np.flatnonzero(timed & (columns.ph != ord("M")))
            if len(rows):
                start, dur = columns.start_ns[rows], columns.dur_ns[rows].clip(0)
                reach = joined([reach, Reach(int(start.min()), int((start + dur).max()))]) or reach
            chosen = timed & (columns.dur_ns >= 0) & (columns.ph == ord("X"))
            start = columns.start_ns[chosen]
            pieces.append(
                {
                    "track": columns.tid[chosen],
                    "start": start,
                    "end": start + columns.dur_ns[chosen],
                    "id": columns.id[chosen],
                    "label": columns.label[chosen].astype(np.int32) + len(labels),
                    "outermost": columns.outermost[chosen],
                }
            )
            labels += columns.labels
        if not pieces:
            return
        # The pieces of a column go before those of the next are put together or in order.
        whole = {name: column_of([piece.pop(name) for piece in pieces]) for name in list(pieces[0])}
        order = track_order(whole["track"], whole["start"], whole["end"], whole.pop("id"))
        track, start, end, label, outermost = (whole.pop(name)[order] for name in list(whole))
        del order
        parents = parents_of(track, start, end, process.near_ns)
        own, inner = end - start, np.flatnonzero(parents >= 0)
        np.subtract.at(own, parents[inner], (end - start)[inner])
        spans = _Spans(track, start, end, label, parents, own, process.near_ns)
        if process.header.run is not None:
            frames = spans.take_frames(may_be_frames(labels, label, track, outermost))
            main = spans.main_thread(process.pid) if KINDS[turn.kind] == "ranks" else None
            if main is not None:
                labels.append(NOT_ANNOTATED)
                spans = spans.lay_around(main, frames, reach, len(labels) - 1)
        del track, start, end, label, parents, own, inner, outermost
        self._add(turn, labels, spans)

    def merge(self, other: FlameTree) -> None:
        """Add the spans of another tree."""
        numbers: list[int] = []
        for path in other._paths:
            parent = numbers[path.parent] if path.parent >= 0 else -1
            numbers.append(self._path(parent, path.cat, path.name, path.seen))
            own = self._paths[numbers[-1]]
            own.count += path.count
            own.total += path.total
            own.own += path.own

    def _add(self, turn: Turn, labels: Sequence[tuple[str, str]], spans: _Spans) -> None:
        around = np.minimum(spans.parents, MAIN)
        roots = {MAIN: self._path(-1, "", KINDS[turn.kind], (turn, MAIN))}
        if (around == BESIDE).any():
            roots[BESIDE] = self._path(-1, "", BESIDE_RANKS, (turn, MAIN))

        def path(above: int, name: int) -> int:
            return self._path(above if above >= 0 else roots[above], *labels[name], (turn, name))

        places = places_of(spans.parents, spans.label, around, path)
        count = np.bincount(places, minlength=len(self._paths))
        total, own = (self._sums(places, ns) for ns in (spans.end - spans.start, spans.own))
        for at in np.flatnonzero(count).tolist():
            self._paths[at].count += int(count[at])
            self._paths[at].total += total(at)
            self._paths[at].own += own(at)

    def _sums(self, places: Integers, ns: Integers) -> Callable[[int], int]:
        """Return what adds up times by the numbers of their paths."""
        # Halves of the times, whose sums stay within 64 bits.
        high, low = np.zeros((2, len(self._paths)), np.int64)
        np.add.at(high, places, ns >> 32)
        np.add.at(low, places, ns & 0xFFFFFFFF)
        return lambda at: (int(high[at]) << 32) + int(low[at])

    def _path(self, parent: int, cat: str, name: str, seen: Seen) -> int:
        key = (parent, cat, name)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._paths)
            depth = self._paths[parent].depth + 1 if parent >= 0 else 0
            self._paths.append(_Path(cat, name, parent, depth, seen))
        self._paths[number].seen = min(self._paths[number].seen, seen)
        return number

    def add_samples(self, part: str, name: str, sampled: Sampled, cuts_ns: Integers) -> None:
        """Add the stacks of a phase below a frame that is called so; the part is its colour.

        Their times are told by the ranges between some cuts, too.
        """
        tree = sampled.samples.tree
        root = self._path(-1, "", name, (NO_TURN, len(self._paths)))
        nodes, which = np.unique(sampled.samples.stack, return_inverse=True)
        ranges = np.zeros((len(nodes), len(cuts_ns) + 1), np.int64)
        within = places(cuts_ns, sampled.samples.at_ns, right=True)
        np.add.at(ranges, (which, within), sampled.samples.period_ns)
        columns = nodes.tolist(), np.bincount(which).tolist(), ranges
        for node, count, range_ns in zip(*columns, strict=True):
            at, in_library, ns = root, False, int(range_ns.sum())
            self._paths[root].add_ranges(range_ns)
            for frame in tree.stack(node):
                function = tree.functions[frame.function]
                # Of libraries that call each other the first is what the program has called.
                if not (in_library and function.is_library):
                    called = place_text(function.name, function.file, frame.line)
                    cat = "library" if function.is_library else "program"
                    at = self._path(at, cat, called, (NO_TURN, len(self._paths)))
                    path = self._paths[at]
                    path.part = part
                    path.count += count
                    path.total += ns
                    path.add_ranges(range_ns)
                in_library = function.is_library
            self._paths[at].own += ns

    def graph(self, most: int = MOST_FRAMES) -> FlameGraph:
        """Return the paths with most time, from the outermost inwards."""
        paths = self._paths
        inside = [0] * len(paths)
        for path in paths:
            if path.parent >= 0:
                inside[path.parent] += path.total
        totals = [
            path.total if path.parent >= 0 else own for path, own in zip(paths, inside, strict=True)
        ]
        sizes = sorted(totals, reverse=True)
        least = sizes[most] + 1 if len(sizes) > most else 0
        self.range_ns = []
        kept = {at for at, path in enumerate(paths) if totals[at] >= least or path.parent < 0}
        children: dict[int, list[int]] = {}
        for at in kept:
            children.setdefault(paths[at].parent, []).append(at)
        frames: list[FlameFrame] = []
        numbers = {-1: -1}
        waiting = [-1]
        while waiting:
            above = waiting.pop()
            inner = sorted(children.get(above, ()), key=lambda at: (-totals[at], paths[at].seen))
            for at in inner:
                numbers[at] = len(frames)
                path = paths[at]
                if path.range_ns is not None:
                    self.range_ns.append(path.range_ns.tolist())
                frames.append(
                    FlameFrame(
                        briefly_named(path.cat),
                        briefly_named(path.name),
                        numbers[path.parent],
                        path.count,
                        min(totals[at], MOST_NS),
                        min(max(0, path.own), MOST_NS),
                        path.part
                        or (part_of_span(path.cat, path.name) if path.parent >= 0 else "none"),
                    )
                )
            waiting += reversed(inner)
        return FlameGraph(
            frames, len(paths) - len(frames), max((path.depth for path in paths), default=0)
        )
