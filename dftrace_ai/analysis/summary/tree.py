"""The spans of all processes as one tree: who lies in whom, with own time; needs NumPy."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.reading.event_columns import Label
from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.summary.chosen_events import READINGS, NotInOrderError
from dftrace_ai.analysis.summary.durations import Spread
from dftrace_ai.analysis.summary.rows import TreeRow
from dftrace_ai.analysis.summary.totals import Wall
from dftrace_ai.analysis.tracks import distinct, places_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.where import Where

__all__ = ["Tree", "tree_of"]

# Who makes a name for every step makes millions of places; they share one, with those below.
MOST_PLACES: Final = 100_000
TOO_MANY: Final = Label("", "(too many names)")
MOST_DEPTH: Final = 200


@dataclass
class _Sums:
    """What the spans of a place come to."""

    spread: Spread = field(default_factory=Spread)
    wall: Wall = field(default_factory=Wall)


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

    def add(self, parts: Sequence[Trace], where: Where | None, wall_ns: int | None = None) -> None:
        """Add the spans of a process.

        Args:
            parts: its files in their order.
            where: which events are asked for; all without it.
            wall_ns: how long it went; None where that is not known.

        Raises:
            TraceError: a file cannot be read.
        """
        for way in READINGS:
            reading = way(parts, where)
            codes: list[Integers] = []
            # The figures are added up when it is known where the spans are.
            kept: list[tuple[Integers, Integers, Integers]] = []
            try:
                for batch in reading.batches(parents=True):
                    codes.append(batch.label)
                    kept.append((_small(batch.dur_ns), _small(batch.own_ns), batch.chosen))
            except NotInOrderError:
                continue
            self.chosen_events += reading.events.chosen_events
            if codes:
                code, codes = np.concatenate(codes), []
                place, numbers = self._places(reading.parents(), code, tuple(reading.events.labels))
                touched: set[int] = set()
                for dur, own, chosen in kept:
                    at, place = place[: len(dur)], place[len(dur) :]
                    touched |= self._add(at[chosen], numbers, dur[chosen], own[chosen])
                for number in touched:
                    self._sums[number].wall.add(wall_ns)
            return

    def _places(
        self, parents: Integers, code: Integers, labels: tuple[Label, ...]
    ) -> tuple[Integers, list[int]]:
        """Return a number for the place of each span, and which place has each number."""
        numbers: list[int] = []

        def number(around: int, code: int) -> int:
            numbers.append(self._number(numbers[around] if around >= 0 else -1, labels[code]))
            return len(numbers) - 1

        roots = np.broadcast_to(np.int32(-1), parents.shape)
        return places_of(parents, code, roots, number), numbers

    def _add(
        self, place: Integers, numbers: list[int], dur: Integers, own_ns: Integers
    ) -> set[int]:
        """Add spans; returns the places that have some of them."""
        if not len(place):
            return set()
        places, which = distinct(place)
        # NumPy is ten times as slow where it has to change the kind of each number.
        dur, own_ns = dur.astype(np.int64), own_ns.astype(np.int64)
        inside_ns = np.zeros(len(places), np.int64)
        np.add.at(inside_ns, which, own_ns)
        order = np.argsort(which, kind="stable")
        durations = np.split(dur[order], np.cumsum(np.bincount(which))[:-1])
        touched = [numbers[at] for at in places.tolist()]
        for number, of_place, own in zip(touched, durations, inside_ns.tolist(), strict=True):
            self._sums[number].spread.add(of_place, own)
        return set(touched)

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
        weights = [sums.spread.total_ns for sums in self._sums]
        asked = [sums.spread.count > 0 for sums in self._sums]
        below: defaultdict[int, list[int]] = defaultdict(list)
        for at in reversed(range(len(weights))):
            around = self._around[at]
            if asked[at]:
                below[around].append(at)
            if around >= 0 and asked[at]:
                asked[around] = True
                if not self._sums[around].spread.count:
                    weights[around] += weights[at]
        for each in below.values():
            each.sort(key=lambda at: (weights[at], self._labels[at]))
        paths: dict[int, tuple[str, ...]] = {-1: ()}
        open_places = below[-1]
        while open_places:
            at = open_places.pop()
            label = self._labels[at]
            paths[at] = (*paths[self._around[at]], f"{label.cat}.{label.name}")
            yield _row(paths[at], label, self._sums[at])
            open_places += below[at]


def _small(times: Integers) -> Integers:
    """Return times in half of the memory where none is longer than four seconds."""
    return times.astype(np.uint32) if times.max(initial=0) < 2**32 else times


def _row(path: tuple[str, ...], label: Label, sums: _Sums) -> TreeRow:
    spread, wall_ns = sums.spread, sums.wall.told_ns
    some = spread.count > 0
    p50, p95, p99 = spread.quantiles(0.5, 0.95, 0.99) if some else (0.0, 0.0, 0.0)
    return TreeRow(
        path,
        *label,
        spread.count,
        total_us=spread.total_ns / 1000,
        self_us=spread.own_ns / 1000,
        share=spread.own_ns / wall_ns if some and wall_ns else None,
        wall_us=wall_ns / 1000 if some and wall_ns is not None else None,
        mean_us=spread.total_ns / 1000 / spread.count if some else None,
        min_us=spread.least_ns / 1000 if some else None,
        p50_us=p50 / 1000 if some else None,
        p95_us=p95 / 1000 if some else None,
        p99_us=p99 / 1000 if some else None,
        max_us=spread.greatest_ns / 1000 if some else None,
    )


def tree_of(
    traces: Iterable[Trace],
    where: Where | None = None,
    wall_ns: Callable[[Sequence[Trace]], int | None] | None = None,
) -> Tree:
    """Return the spans of traces as one tree: that of all their threads and processes.

    Args:
        traces: all of a process among them.
        where: which events are asked for; all without it.
        wall_ns: returns how long the process of some files went; without it shares are not known.

    Raises:
        TraceError: a trace cannot be read.

    Example::

        for row in tree_of(open_traces(["out/"])).rows():
            print("  " * len(row.path), row.name, row.total_us, row.self_us)
    """
    tree = Tree()
    for parts in recordings_of(traces).values():
        tree.add(parts, where, wall_ns(parts) if wall_ns else None)
    return tree
