"""On whom those wait that come last, since they were held up before.

Who came late is not to blame when it was held up in another collective for most of that, and did
not take longer than others after it: then whom that one waited for is. All of it goes by durations
on one clock each, and by ends, which coincide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.groups import ROOTED_FROM
from dftrace_ai.analysis.ranks.ordering import begins
from dftrace_ai.analysis.ranks.partials import UNTOLD
from dftrace_ai.analysis.steps.spans import places

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.calls import RanksInOrder
    from dftrace_ai.analysis.ranks.meetings import Meetings
    from dftrace_ai.analysis.reading.event_columns import Integers

# 64 collectives back at most.
_DOUBLINGS: Final = 6

_LONG_AGO: Final = np.iinfo(np.int64).min

# Of what orders calls of many ranks in one number.
_MOST: Final = 1 << 62


class _LastOf(NamedTuple):
    """Of each rank the last collective of what was looked at before."""

    left_ns: Integers
    held_ns: Integers
    group: Integers
    root: Integers  # `UNTOLD` for none


class Roots:
    """Follows who held up whom, a part of a run after the other."""

    def __init__(self, ranks: RanksInOrder) -> None:
        none = np.zeros(len(ranks.place), np.int64)
        self._groups = ranks.groups
        self._last = _LastOf(none, none.copy(), none.copy(), none + UNTOLD)

    def of(self, meetings: Meetings) -> Integers:
        """Return of each collective the rank, its index in the job, on whom all waited."""
        matches = meetings.matches
        root: Integers = meetings.last.copy()
        good = meetings.known & (meetings.last != UNTOLD) & (matches.name < ROOTED_FROM)
        if not good.any():
            return root
        calls, meeting = matches.calls, matches.meeting
        at = matches.by_time
        if not good.all():
            at = at[good.take(meeting.take(at))]
        of, rank = meeting.take(at), calls.rank.take(at)
        left, start = meetings.left_ns.take(at), calls.start_ns.take(at)
        edges = begins(rank)
        before = self._before(rank, left, start, edges)
        inside = before >= 0
        has = inside | (self._last.root.take(rank) != UNTOLD)
        # What follows goes by meetings: the row of each one's last, and its others.
        is_last = rank == meetings.last.take(of)
        rows = np.flatnonzero(is_last & has)
        # Those that were in the same group left the one before together.
        group = np.where(inside[rows], calls.group[at[before[rows]]], self._last.group[rank[rows]])
        rows = rows[group != matches.group[of[rows]]]
        some = _rows_of(of[rows], of, len(root))
        late = _later(at[some], (start - left)[some], is_last[some], matches.first, matches.size)
        held = np.where(inside[rows], (left - start)[before[rows]], self._last.held_ns[rank[rows]])
        late_of = late[of[rows]]
        rows = rows[(late_of > 0) & (2 * held > late_of)]
        mine = of[rows]
        through = np.full(len(root), UNTOLD)
        through[mine] = np.where(inside[rows], of[before[rows]], UNTOLD)
        some = _rows_of(mine, of, len(root))
        together = self._left_with(meetings, through[of[some]], rank[some])
        ended = np.where(inside[some], left[before[some]], self._last.left_ns[rank[some]])
        own = start[some] - np.maximum(np.where(has[some], ended, start[some]), together)
        more = _later(at[some], own, is_last[some], matches.first, matches.size)
        goes = rows[2 * more[mine] < late[mine]]
        parent = np.arange(len(root))
        within, beyond = goes[inside[goes]], goes[~inside[goes]]
        parent[of[within]] = of[before[within]]
        root[of[beyond]] = self._last.root[rank[beyond]]
        for _ in range(_DOUBLINGS):
            parent = parent[parent]
        root = root[parent]
        ends = np.append(edges[1:], len(at)) - 1
        self._last.left_ns[rank[ends]] = left[ends]
        self._last.held_ns[rank[ends]] = (left - start)[ends]
        self._last.group[rank[ends]] = calls.group[at[ends]]
        self._last.root[rank[ends]] = root[of[ends]]
        return root

    def _left_with(self, meetings: Meetings, others: Integers, rank: Integers) -> Integers:
        """Return when ranks left other meetings, by their clocks; long ago for not at all."""
        matches, groups = meetings.matches, self._groups
        group = matches.group[others]
        # All members that have a trace are in it, in the order of their clocks.
        at = matches.first[others] + groups.place[group, rank]
        inside = (others != UNTOLD) & groups.inside[group, rank]
        return np.where(inside, meetings.left_ns[np.where(inside, at, 0)], _LONG_AGO)

    def _before(self, rank: Integers, left: Integers, start: Integers, edges: Integers) -> Integers:
        """Return of each call that of its rank that had ended last when it began; -1 for none."""
        found = np.arange(-1, len(rank) - 1)
        found[edges] = -1
        follows = np.append(left[:-1] <= start[1:], False)
        follows[edges[1:] - 1] = follows[-1] = True
        if follows.all():  # each had ended before the next began
            return found
        count = np.diff(edges, append=len(rank))
        number = np.repeat(np.arange(len(edges)), count)
        base = np.repeat(np.minimum.reduceat(left, edges), count)
        ended, begun = left - base, np.maximum(start - base, -1)
        wide = int(max(ended.max(), begun.max())) + 2
        a_time = max(_MOST // wide, 1)
        for first in range(0, len(edges), a_time):
            low = int(edges[first])
            high = len(rank) if first + a_time >= len(edges) else int(edges[first + a_time])
            part = slice(low, high)
            shift = (number[part] - first) * wide
            keys = ended[part] + shift
            order = None
            if (keys[1:] < keys[:-1]).any():
                order = np.argsort(keys, kind="stable")
                keys = keys[order]
            place = places(keys, begun[part] + shift, right=True) - 1
            # One that took no time is not before itself.
            itself = np.arange(high - low) if order is None else np.argsort(order)
            place -= place == itself
            known: Integers = (place >= 0) & (np.where(place >= 0, keys[place], -1) >= shift)
            own = place if order is None else order[place]
            found[part] = np.where(known, own + low, -1)
        return found


def _rows_of(some: Integers, meeting: Integers, count: int) -> Integers:
    """Return the rows of some meetings, by the meeting of each row."""
    if not len(some):
        return some
    wanted = np.zeros(count, bool)
    wanted[some] = True
    return np.flatnonzero(wanted.take(meeting))


def _later(
    at: Integers, values: Integers, is_last: Integers, first: Integers, size: Integers
) -> Integers:
    """Return of each meeting how much more its last has than the low median of the others."""
    found = np.zeros(len(first), np.int64)
    if not len(at):
        return found
    placed = np.zeros(int(size.sum()), np.int64)
    lasts = np.zeros(len(placed), bool)
    placed[at], lasts[at] = values, is_last
    there = np.logical_or.reduceat(lasts, first)
    for many in np.unique(size[there]).tolist():
        some = np.flatnonzero(there & (size == many))
        rows = first[some][:, None] + np.arange(many)
        table, last = placed[rows], lasts[rows]
        mine = np.where(last, table, 0).sum(1)
        if many == 1:
            continue
        table[last] = np.iinfo(np.int64).max
        middle = (many - 2) // 2
        found[some] = mine - np.partition(table, middle, axis=1)[:, middle]
    return found
