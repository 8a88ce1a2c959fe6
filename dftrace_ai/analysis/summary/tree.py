"""The spans of all processes as one tree: who lies in whom, with own time; needs NumPy."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.reading.event_columns import Label
from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.summary.adding import enough_memory, new_sums
from dftrace_ai.analysis.summary.event_reading import NONE, EventReading, ReadAgainError
from dftrace_ai.analysis.summary.rows import TreeRow, row_of
from dftrace_ai.analysis.tracks import places_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import SkippedFile
    from dftrace_ai.analysis.summary.event_reading import ProcessEvents
    from dftrace_ai.analysis.summary.figures import Summary
    from dftrace_ai.analysis.summary.rows import Figures
    from dftrace_ai.analysis.where import Where

__all__ = ["summarise_tree"]

# Who makes a name for every step makes millions of places; they share one, with those below.
MOST_PLACES: Final = 100_000
TOO_MANY: Final = Label("", "(too many names)")
MOST_DEPTH: Final = 200


class _Tree:
    """Adds up the spans of processes by their place."""

    def __init__(self) -> None:
        # Names that share a place with others, since they are too many or too deep.
        self.left_out = 0
        self._sums = new_sums()
        self._numbers: dict[tuple[int, Label], int] = {}
        # Of each place; those around others come before them.
        self._around: list[int] = []
        self._labels: list[Label] = []
        self._depths: list[int] = []

    def add(self, process: ProcessEvents) -> None:
        """Add the spans of a process."""
        # The figures are added up when it is known where the spans are.
        kept: list[tuple[Integers, Integers, Integers | None]] = []
        codes: list[Integers] = []
        while True:
            try:
                for batch in process.batches(parents=True):
                    codes.append(batch.label.astype(np.int32))
                    kept.append((_small(batch.dur_ns), _small(batch.own_ns), batch.chosen))
            except ReadAgainError:
                codes, kept = [], []
                continue
            break
        sums = new_sums()
        if codes:
            place = self._places(process.parents(), np.concatenate(codes), process.labels)
            for dur, own, chosen in kept:
                at, place = place[: len(dur)].astype(np.int64), place[len(dur) :]
                none = np.full(len(dur), NONE)
                # When they were matters to groups alone.
                sums.add(at, none, none, none, dur.astype(np.int64), own.astype(np.int64), chosen)
        process.end()
        self._sums.take(sums, process.wall_ns, None)

    def _places(self, parents: Integers, code: Integers, labels: tuple[Label, ...]) -> Integers:
        """Return the place of each span."""
        numbers: list[int] = []

        def number(around: int, code: int) -> int:
            numbers.append(self._number(numbers[around] if around >= 0 else -1, labels[code]))
            return len(numbers) - 1

        roots = np.broadcast_to(np.int32(-1), parents.shape)
        of_process = places_of(parents, code, roots, number)
        return np.array(numbers, np.int32)[of_process]

    def _number(self, around: int, label: Label) -> int:
        found = self._numbers.get((around, label))
        if found is not None:
            return found
        depth = self._depths[around] + 1 if around >= 0 else 0
        if depth >= MOST_DEPTH or (around >= 0 and self._labels[around] == TOO_MANY):
            self.left_out += 1
            self._numbers[around, label] = around
            return around
        if len(self._labels) >= MOST_PLACES and label != TOO_MANY:
            self.left_out += 1
            return self._number(around, TOO_MANY)
        self._numbers[around, label] = len(self._labels)
        self._around.append(around)
        self._labels.append(label)
        self._depths.append(depth)
        return len(self._labels) - 1

    def rows(self) -> Iterator[TreeRow]:
        """Yield the places with spans or with such inside, by falling total within each other."""
        figures = {row[0][0]: row[2:] for row in self._sums.rows(len(self._sums))}
        weights = [0] * len(self._labels)
        asked = [False] * len(self._labels)
        for place, each in figures.items():
            weights[place], asked[place] = each[1], True
        below: defaultdict[int, list[int]] = defaultdict(list)
        for at in reversed(range(len(weights))):
            around = self._around[at]
            if asked[at]:
                below[around].append(at)
            if around >= 0 and asked[at]:
                asked[around] = True
                if around not in figures:
                    weights[around] += weights[at]
        for inside in below.values():
            inside.sort(key=lambda at: (weights[at], self._labels[at]))
        paths: dict[int, tuple[str, ...]] = {-1: ()}
        open_places = below[-1]
        while open_places:
            at = open_places.pop()
            label = self._labels[at]
            paths[at] = (*paths[self._around[at]], f"{label.cat}.{label.name}")
            yield _row(paths[at], label, figures.get(at))
            open_places += below[at]


def _small(times: Integers) -> Integers:
    """Return times in half of the memory where none is longer than four seconds."""
    return times.astype(np.uint32) if times.max(initial=0) < 2**32 else times


def _row(path: tuple[str, ...], label: Label, figures: Figures | None) -> TreeRow:
    if figures is None:
        return TreeRow(path, *label, 0, 0.0, 0.0, *[None] * 8)
    row = row_of(*label, figures)
    own_ns, wall_ns = figures[2] or 0, figures[8]
    return TreeRow(
        path,
        *label,
        row.count,
        total_us=row.total_us,
        self_us=row.self_us or 0.0,
        share=own_ns / wall_ns if wall_ns else None,
        wall_us=row.wall_us,
        mean_us=row.mean_us,
        min_us=row.min_us,
        p50_us=row.p50_us,
        p95_us=row.p95_us,
        p99_us=row.p99_us,
        max_us=row.max_us,
    )


def summarise_tree(
    traces: Sequence[Trace], skipped: Sequence[SkippedFile], where: Where | None = None
) -> tuple[Summary, tuple[TreeRow, ...]]:
    """Return the spans of all threads and processes as one tree, and what is said of the files."""
    reading = EventReading(where, all_others=True)
    reading.files.skipped += skipped
    tree = _Tree()
    with enough_memory():
        for parts in recordings_of(traces).values():
            tree.add(reading.process(parts))
    return reading.summary(left_out=tree.left_out), tuple(tree.rows())
