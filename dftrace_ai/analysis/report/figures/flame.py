"""Where the time goes: spans merged by their path, from the outermost span inwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.report.figures.envelopes import briefly_named
from dftrace_ai.analysis.report.model import FlameFrame, FlameGraph
from dftrace_ai.analysis.steps.spans import LATEST_NS, in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers
    from dftrace_ai.analysis.steps import Job, Process

__all__ = ["flame_graph", "processes_of", "rows_of"]

MOST_FRAMES: Final = 1500

MOST_NS: Final = 2**63 - 1

RANKS, WORKERS, OTHERS = "ranks", "loader workers", "other processes"


@dataclass
class _Path:
    """A node of the tree of paths."""

    cat: str
    name: str
    parent: int
    count: int = 0
    total: int = 0
    inside: int = 0


def processes_of(job: Job) -> Iterable[tuple[str, Process]]:
    """Return all processes, each with what kind it is."""
    for rank in job.ranks:
        yield RANKS, rank.process
    for rank in job.ranks:
        for worker in rank.workers:
            yield WORKERS, worker
    for process in job.others:
        yield OTHERS, process


def rows_of(process: Process) -> Iterable[tuple[EventColumns, Integers]]:
    """Return the files of a process, each with a mask of the rows that are its own."""
    for columns in process.spans.columns:
        # Our own files and Kineto's are of one process; in others several may be.
        whole = process.header is not None or process.source == "kineto"
        mask = np.ones(len(columns), bool) if whole else columns.pid == process.pid
        yield columns, mask


def flame_graph(job: Job) -> FlameGraph:
    """Merge the spans of all tracks by their path.

    Args:
        job: the processes.
    """
    tree = _Tree()
    for kind, process in processes_of(job):
        tree.add(kind, process)
    return tree.graph()


class _Tree:
    """The paths that were found so far."""

    def __init__(self) -> None:
        self._paths: list[_Path] = []
        self._numbers: dict[tuple[int, str, str], int] = {}
        self._deepest = 0

    def add(self, kind: str, process: Process) -> None:
        """Add the spans of a process."""
        pieces = []
        labels: list[tuple[str, str]] = []
        for columns, mask in rows_of(process):
            timed = (columns.start_ns >= 0) & (columns.start_ns < LATEST_NS)
            timed &= (columns.dur_ns >= 0) & (columns.dur_ns < LATEST_NS)
            chosen = np.flatnonzero(mask & timed & (columns.ph == ord("X")))
            pieces.append(
                (
                    columns.tid[chosen],
                    columns.start_ns[chosen],
                    columns.dur_ns[chosen],
                    columns.id[chosen].astype(np.int64),
                    columns.label[chosen].astype(np.int64) + len(labels),
                )
            )
            labels += columns.labels
        if not pieces:
            return
        tid, start, dur, number, label = map(np.concatenate, zip(*pieces, strict=True))
        order = np.lexsort((number, -dur, start, tid))
        root = self._path(-1, "", kind)
        rows = in_pieces(order, tid, start, dur, label)
        self._add_rows(root, rows, labels, process.near_ns)

    def _add_rows(
        self,
        root: int,
        rows: Iterable[tuple[int, ...]],
        labels: list[tuple[str, str]],
        near_ns: int,
    ) -> None:
        paths = self._paths
        known: dict[tuple[int, int], int] = {}
        # End and path of the spans that are open; of the present track.
        stack: list[tuple[int, int]] = []
        track: int | None = None
        for tid, start, dur, label in rows:
            if tid != track:
                track, stack = tid, []
            end = start + dur
            while stack and (stack[-1][0] <= start or stack[-1][0] + near_ns < end):
                stack.pop()
            parent = stack[-1][1] if stack else root
            here = known.get((parent, label))
            if here is None:
                here = known[parent, label] = self._path(parent, *labels[label])
            path = paths[here]
            path.count += 1
            path.total += dur
            paths[parent].inside += dur
            stack.append((end, here))
            self._deepest = max(self._deepest, len(stack))

    def _path(self, parent: int, cat: str, name: str) -> int:
        key = (parent, cat, name)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._paths)
            self._paths.append(_Path(cat, name, parent))
        return number

    def graph(self) -> FlameGraph:
        paths = self._paths
        for path in paths:
            if path.parent < 0:
                path.total = path.inside
        sizes = sorted((path.total for path in paths), reverse=True)
        least = sizes[MOST_FRAMES] + 1 if len(sizes) > MOST_FRAMES else 0
        kept = {at for at, path in enumerate(paths) if path.total >= least or path.parent < 0}
        children: dict[int, list[int]] = {}
        for at in kept:
            children.setdefault(paths[at].parent, []).append(at)
        frames: list[FlameFrame] = []
        numbers = {-1: -1}
        waiting = [-1]
        while waiting:
            above = waiting.pop()
            inner = sorted(children.get(above, ()), key=lambda at: (-paths[at].total, at))
            for at in inner:
                numbers[at] = len(frames)
                path = paths[at]
                frames.append(
                    FlameFrame(
                        briefly_named(path.cat),
                        briefly_named(path.name),
                        numbers[path.parent],
                        path.count,
                        min(path.total, MOST_NS),
                        0 if path.parent < 0 else min(max(0, path.total - path.inside), MOST_NS),
                    )
                )
            waiting += reversed(inner)
        return FlameGraph(frames, len(paths) - len(frames), self._deepest)
