"""Where the time goes: spans merged by their path, from the outermost span inwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias
from zlib import crc32

import numpy as np

from dftrace_ai.analysis.reading.clocks import LATEST_NS
from dftrace_ai.analysis.report.figures.facts import KINDS, Turn, briefly_named, rows_of
from dftrace_ai.analysis.report.model import FlameFrame, FlameGraph
from dftrace_ai.analysis.steps.roles import DATA_WORK, NO_PART, role_of
from dftrace_ai.analysis.tracks import parents_of, places_of, track_order

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Process
    from dftrace_ai.analysis.steps.roles import Role

MOST_FRAMES: Final = 1500

# The part of a step that a role has the colour of, where it is called otherwise.
PARTS: Final[dict[Role, str]] = {
    **dict.fromkeys(sorted(NO_PART), "other"),
    **dict.fromkeys(sorted(DATA_WORK), "data"),
    "gpu_compute": "gpu",
    "gpu_comm": "comm",
    "gpu_transfer": "transfer",
}
CATEGORIES: Final = "abcdef"

MOST_NS: Final = 2**63 - 1

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


def _joined(pieces: list[Integers]) -> Integers:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class FlameTree:
    """The paths of some processes; those of others are merged into it in any order."""

    def __init__(self) -> None:
        self._paths: list[_Path] = []
        self._numbers: dict[tuple[int, str, str], int] = {}

    def add(self, turn: Turn, process: Process) -> None:
        """Add the spans of a process."""
        pieces: list[dict[str, Integers]] = []
        labels: list[tuple[str, str]] = []
        for columns, mask in rows_of(process):
            timed = (columns.start_ns >= 0) & (columns.start_ns < LATEST_NS)
            timed &= (columns.dur_ns >= 0) & (columns.dur_ns < LATEST_NS)
            chosen = mask & timed & (columns.ph == ord("X"))
            start = columns.start_ns[chosen]
            pieces.append(
                {
                    "track": columns.tid[chosen],
                    "start": start,
                    "end": start + columns.dur_ns[chosen],
                    "id": columns.id[chosen],
                    "label": columns.label[chosen].astype(np.int32) + len(labels),
                }
            )
            labels += columns.labels
        if not pieces:
            return
        # The pieces of a column go before those of the next are put together or in order.
        whole = {name: _joined([piece.pop(name) for piece in pieces]) for name in list(pieces[0])}
        order = track_order(whole["track"], whole["start"], whole["end"], whole.pop("id"))
        track, start, end, label = (whole.pop(name)[order] for name in list(whole))
        del order
        parents = parents_of(track, start, end, process.near_ns)
        dur = end - start
        del track, start, end
        root = self._path(-1, "", KINDS[turn.kind], (turn, -1))

        def path(around: int, name: int) -> int:
            return self._path(around if around >= 0 else root, *labels[name], (turn, name))

        roots = np.broadcast_to(np.int32(-1), parents.shape)
        self._add(places_of(parents, label, roots, path), dur)

    def merge(self, other: FlameTree) -> None:
        """Add the spans of another tree."""
        numbers: list[int] = []
        for path in other._paths:
            parent = numbers[path.parent] if path.parent >= 0 else -1
            numbers.append(self._path(parent, path.cat, path.name, path.seen))
            own = self._paths[numbers[-1]]
            own.count += path.count
            own.total += path.total

    def _add(self, places: Integers, dur_ns: Integers) -> None:
        """Add up what spans take by the numbers of their paths."""
        count = np.bincount(places, minlength=len(self._paths))
        # Halves of the times, whose sums stay within 64 bits.
        high, low = np.zeros(len(count), np.int64), np.zeros(len(count), np.int64)
        np.add.at(high, places, dur_ns >> 32)
        np.add.at(low, places, dur_ns & 0xFFFFFFFF)
        for at in np.flatnonzero(count).tolist():
            path = self._paths[at]
            path.count += int(count[at])
            path.total += (int(high[at]) << 32) + int(low[at])

    def _path(self, parent: int, cat: str, name: str, seen: Seen) -> int:
        key = (parent, cat, name)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._paths)
            depth = self._paths[parent].depth + 1 if parent >= 0 else 0
            self._paths.append(_Path(cat, name, parent, depth, seen))
        self._paths[number].seen = min(self._paths[number].seen, seen)
        return number

    def graph(self) -> FlameGraph:
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
        least = sizes[MOST_FRAMES] + 1 if len(sizes) > MOST_FRAMES else 0
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
                frames.append(
                    FlameFrame(
                        briefly_named(path.cat),
                        briefly_named(path.name),
                        numbers[path.parent],
                        path.count,
                        min(totals[at], MOST_NS),
                        0 if path.parent < 0 else min(max(0, totals[at] - inside[at]), MOST_NS),
                        part_of_span(path.cat, path.name) if path.parent >= 0 else "none",
                    )
                )
            waiting += reversed(inner)
        return FlameGraph(
            frames, len(paths) - len(frames), max((path.depth for path in paths), default=0)
        )
