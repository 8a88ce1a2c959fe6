"""The spans of all processes as one tree: who lies in whom, with own time; needs NumPy."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.reading.event_columns import Label
from dftrace_ai.analysis.summary.chosen_events import spans_of_process
from dftrace_ai.analysis.summary.grouping import processes_of
from dftrace_ai.analysis.summary.rows import TreeRow
from dftrace_ai.analysis.tracks import distinct, places_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.summary.chosen_events import ProcessSpans
    from dftrace_ai.analysis.where import Where

__all__ = ["Tree", "tree_of"]

# Who makes a name for every step makes millions of places; they share one, with those below.
MOST_PLACES: Final = 100_000
TOO_MANY: Final = Label("", "(too many names)")
MOST_DEPTH: Final = 200


@dataclass
class _Sums:
    """What the spans of a place come to, nanoseconds."""

    count: int = 0
    total: int = 0
    own: int = 0
    least: int = 0
    greatest: int = 0


class Tree:
    """Adds up the spans of processes by their place.

    Attributes:
        chosen_events: events that were asked for.
        left_out: names that share a place with others, since they are too many or too deep.
    """

    def __init__(self) -> None:
        self.chosen_events = 0
        self.left_out = 0
        self._numbers: dict[tuple[int, Label], int] = {}
        # Of each place; those around others come before them.
        self._around: list[int] = []
        self._labels: list[Label] = []
        self._depths: list[int] = []
        self._sums: list[_Sums] = []

    def add(self, found: ProcessSpans) -> None:
        """Add the spans of a process."""
        numbers: list[int] = []

        def number(around: int, code: int) -> int:
            numbers.append(self._number(numbers[around] if around >= 0 else -1, found.labels[code]))
            return len(numbers) - 1

        roots = np.full(len(found.parents), -1, np.int64)
        place = places_of(found.parents, found.label, roots, number)
        rows = np.flatnonzero(found.chosen)
        self.chosen_events += found.chosen_events
        if not len(rows):
            return
        places, which = distinct(place[rows])
        dur = found.dur_ns[rows]
        least_ns = np.full(len(places), np.iinfo(np.int64).max)
        total_ns, own_ns, greatest_ns = (np.zeros(len(places), np.int64) for _ in range(3))
        np.add.at(total_ns, which, dur)
        np.add.at(own_ns, which, found.own_ns[rows])
        np.minimum.at(least_ns, which, dur)
        np.maximum.at(greatest_ns, which, dur)
        columns = (places, np.bincount(which), total_ns, own_ns, least_ns, greatest_ns)
        for at, count, total, own, least, greatest in zip(
            *(values.tolist() for values in columns), strict=True
        ):
            sums = self._sums[numbers[at]]
            sums.least = min(sums.least, least) if sums.count else least
            sums.greatest = max(sums.greatest, greatest)
            sums.count += count
            sums.total += total
            sums.own += own

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
        self._sums.append(_Sums())
        return len(self._labels) - 1

    def rows(self) -> Iterator[TreeRow]:
        """Yield the places with spans or with such inside, by falling total within each other."""
        weights = [sums.total for sums in self._sums]
        asked = [sums.count > 0 for sums in self._sums]
        below: defaultdict[int, list[int]] = defaultdict(list)
        for at in reversed(range(len(weights))):
            around = self._around[at]
            if asked[at]:
                below[around].append(at)
            if around >= 0 and asked[at]:
                asked[around] = True
                if not self._sums[around].count:
                    weights[around] += weights[at]
        for each in below.values():
            each.sort(key=lambda at: (weights[at], self._labels[at]))
        whole = sum(sums.own for sums in self._sums)
        paths: dict[int, tuple[str, ...]] = {-1: ()}
        open_places = below[-1]
        while open_places:
            at = open_places.pop()
            label = self._labels[at]
            paths[at] = (*paths[self._around[at]], f"{label.cat}.{label.name}")
            yield _row(paths[at], label, self._sums[at], whole)
            open_places += below[at]


def _row(path: tuple[str, ...], label: Label, sums: _Sums, whole: int) -> TreeRow:
    some = sums.count > 0
    return TreeRow(
        path,
        *label,
        sums.count,
        total_us=sums.total / 1000,
        self_us=sums.own / 1000,
        share=sums.own / whole if whole else None,
        mean_us=sums.total / 1000 / sums.count if some else None,
        min_us=sums.least / 1000 if some else None,
        max_us=sums.greatest / 1000 if some else None,
    )


def tree_of(traces: Iterable[Trace], where: Where | None = None) -> Tree:
    """Return the spans of traces as one tree: that of all their threads and processes.

    Args:
        traces: all of a process among them.
        where: which events are asked for; all without it.

    Raises:
        TraceError: a trace cannot be read.

    Example::

        for row in tree_of(open_traces(["out/"])).rows():
            print("  " * len(row.path), row.name, row.total_us, row.self_us)
    """
    tree = Tree()
    for parts in processes_of(traces).values():
        tree.add(spans_of_process(parts, where))
    return tree
