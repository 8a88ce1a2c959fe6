"""Operations that wait for each other, and when each ends for any times that they take.

What ends last before an operation lets it begin; members of a meeting begin together, when the
last of them has come. So an end is the longest path to it. Times are whole nanoseconds: the order
in which ends are worked out changes none. Several variants of the times are worked out at once, as
columns, a level of the graph at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers

ALONE: Final = -1
"""In place of a meeting, for an operation that meets nobody."""


class CircleError(Exception):
    """Operations wait for each other in a circle."""

    def __init__(self, operations: Integers, names: tuple[str, ...] = ()) -> None:
        super().__init__(f"{len(operations)} operations wait for each other")
        self.operations = operations
        self.names = names


class _Level(NamedTuple):
    """Nodes that nothing but earlier levels lets begin; they follow each other in number."""

    first: int
    last: int
    sources: Integers  # nodes before them, by the node that they are before
    starts: Integers  # where those of each node begin in `sources`


class Graph:
    """What is before what, in levels."""

    def __init__(
        self, before: Integers, after: Integers, meeting: Integers, gives: Integers, waits: Integers
    ) -> None:
        """Put operations into levels."""
        count = len(meeting)
        self.count = count
        self._before, self._after = before, after
        member = meeting != ALONE
        nodes = count + int(meeting.max(initial=ALONE)) + 1
        # What comes before a member comes before its meeting, and that before the member's end.
        to_meeting = (member & gives)[after]
        to_itself = ~(member & gives & waits)[after]
        waiting = np.flatnonzero(member & waits)
        sources = np.concatenate((before[to_meeting], before[to_itself], count + meeting[waiting]))
        targets = np.concatenate((count + meeting[after[to_meeting]], after[to_itself], waiting))
        level = _levels(nodes, sources, targets)
        if level.min(initial=0) < 0:
            # What comes after a circle is in none.
            some = (level[sources] < 0) & (level[targets] < 0)
            back = _levels(nodes, targets[some], sources[some])
            raise CircleError(np.flatnonzero((level[:count] < 0) & (back[:count] < 0)))
        order = np.argsort(level, kind="stable")
        place = np.empty(nodes, np.int64)
        place[order] = np.arange(nodes)
        self._place = place[:count]
        self._nodes = nodes
        self._levels = _cut(level[order], place[sources], place[targets])

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return len(self._levels)

    def ends(self, times: Integers, rows: Integers | slice = slice(None)) -> Integers:
        """Return when operations end, ``(operations, variants)``."""
        ends = np.zeros((self._nodes, times.shape[1]), np.int64)
        ends[self._place] = times
        for first, last, sources, starts in self._levels:
            if len(sources) == last - first:
                ends[first:last] += ends[sources]
            elif len(sources):
                ends[first:last] += np.maximum.reduceat(ends[sources], starts, axis=0)
        found: Integers = ends[self._place[rows]]
        return found

    def starts(self, ends: Integers) -> Integers:
        """Return when operations may begin, given when all end; of members: when they come."""
        found = np.zeros_like(ends)
        np.maximum.at(found, self._after, ends[self._before])
        return found


def _levels(nodes: int, sources: Integers, targets: Integers) -> Integers:
    """Return the level of each node, -1 for those of circles and what comes after them."""
    missing = np.bincount(targets, minlength=nodes)
    order = np.argsort(sources, kind="stable")
    following = targets[order]
    first = np.searchsorted(sources[order], np.arange(nodes + 1))
    level = np.full(nodes, -1, np.int64)
    front = np.flatnonzero(missing == 0)
    number = 0
    while len(front):
        level[front] = number
        number += 1
        reached = following[_ranges(first[front], first[front + 1])]
        np.subtract.at(missing, reached, 1)
        done = reached[missing[reached] == 0]
        # A node that several of the front are before is reached several times.
        missing[done] = -1
        front = np.unique(done)
    return level


def _ranges(first: Integers, last: Integers) -> Integers:
    """Return the whole numbers from each first to before each last, one range after the other."""
    lengths = last - first
    before = np.cumsum(lengths) - lengths
    found: Integers = np.arange(int(lengths.sum())) + np.repeat(first - before, lengths)
    return found


def _cut(level: Integers, sources: Integers, targets: Integers) -> list[_Level]:
    order = np.argsort(targets, kind="stable")
    sources, targets = sources[order], targets[order]
    starts = np.searchsorted(targets, np.arange(len(level) + 1))
    edges = np.searchsorted(level, np.arange(int(level.max(initial=-1)) + 2))
    found = []
    for number in range(len(edges) - 1):
        first, last = int(edges[number]), int(edges[number + 1])
        low, high = int(starts[first]), int(starts[last])
        found.append(_Level(first, last, sources[low:high], starts[first:last] - low))
    return found
