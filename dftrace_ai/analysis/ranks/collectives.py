"""Where ranks meet: what collectives and messages take, who waits in them and for whom."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.clock_offsets import Clocks, clocks_of
from dftrace_ai.analysis.ranks.groups import CALLS, MESSAGE, ROOTED_FROM, SEND
from dftrace_ai.analysis.ranks.links import Links, SlowLink
from dftrace_ai.analysis.ranks.matching import Matching, both
from dftrace_ai.analysis.ranks.meetings import SURE, Meetings
from dftrace_ai.analysis.ranks.model import CollectiveRow, Quantiles, RankShare, Unmatched
from dftrace_ai.analysis.ranks.ordering import begins, sorted_by
from dftrace_ai.analysis.ranks.own_work import part_in_steps
from dftrace_ai.analysis.ranks.partials import UNTOLD
from dftrace_ai.analysis.steps.spans import places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.ranks.blocks import Block
    from dftrace_ai.analysis.ranks.calls import RanksInOrder
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.matching import Matches
    from dftrace_ai.analysis.ranks.partials import Group
    from dftrace_ai.analysis.reading.event_columns import Integers


MOST_GROUPS: Final = 4
"""More groups alike are one row."""

_MOST_NAMED: Final = 3
_ALL_TO_ALL: Final = CALLS.index("all_to_all")

# A whole number as a float has its power of two, and these bits behind it, in front.
_BITS: Final = 7
_SHIFT: Final = 52 - _BITS
_ZERO: Final = 1023 << _BITS
_BINS: Final = 62 << _BITS


def bus_factor(name: str, ranks: int) -> float | None:
    """Return what goes over each link by the bytes of a collective; None where it has none."""
    # https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    if name in {"send", "receive"}:
        return 1.0
    if name == "barrier" or ranks < 2:
        return None
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if name in {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}:
        return (ranks - 1) / ranks
    return 1.0


class WaitedIn(NamedTuple):
    """Where others wait for some ranks most."""

    name: str  # of the collective
    group: str
    part: float  # of all that they wait for them
    members: tuple[int, ...]  # ranks of the group; of groups alike, of those with one of the ranks


@dataclass(frozen=True, repr=False)
class Collectives:
    """Where the ranks of a job meet."""

    table: tuple[CollectiveRow, ...]  # by name and group, where ranks wait most first
    last: tuple[RankShare, ...]  # who came last, by the waiting that it made in all of them
    root: tuple[RankShare, ...]  # on whom those waited that came last, likewise
    links: tuple[SlowLink, ...]  # which are slow
    unmatched: Unmatched  # what is left out
    clocks: Clocks  # of the hosts
    count: int  # collectives and messages in the steps that are judged
    all_enqueued: bool  # whether of none is known when it ended
    left_out: tuple[Group, ...]  # groups that are: too many of their collectives contradict others
    alone: tuple[Group, ...]  # groups of which one member alone has a trace
    _waits: _Waits

    def waited_in(self, ranks: Sequence[int]) -> WaitedIn | None:
        """Return where others wait for some ranks most, by the roots; None where they do not."""
        return self._waits.most_for(ranks)


def collectives_of(job: RanksOfJob, steady: Integers | None = None) -> Collectives:
    """Look at all collectives and messages of a job, in the steps of some numbers or in all."""
    collecting = _Collecting(job, steady)
    # Nobody holds a block of steps while the next is read: of a thousand ranks each is large.
    deque(map(collecting.take, job.blocks("steps", "calls")), maxlen=0)
    return collecting.result(collecting.slow_links())


@dataclass(frozen=True, repr=False)
class _Rows:
    """Which groups are told together."""

    of_group: Integers  # row of each group
    groups: tuple[tuple[int, ...], ...]  # of each row

    @classmethod
    def of(cls, groups: Sequence[Group], across: Integers) -> _Rows:
        alike: dict[tuple[str, int, bool], list[int]] = {}
        for at, group in enumerate(groups):
            kind = group.description or group.name, len(group.ranks), bool(across[at])
            alike.setdefault(kind, []).append(at)
        rows: list[tuple[int, ...]] = []
        for some in alike.values():
            rows += [tuple(some)] if len(some) > MOST_GROUPS else [(at,) for at in some]
        of_group = np.zeros(len(groups), np.int64)
        for number, mine in enumerate(rows):
            of_group[list(mine)] = number
        return cls(of_group, tuple(rows))


class _Row(NamedTuple):
    """What a row of the table is of."""

    groups: int  # row of `_Rows`
    across: bool
    name: int


@dataclass(frozen=True, repr=False)
class _Waits:
    """For whom others wait, by row of the table."""

    rows: tuple[_Row, ...]
    groups: tuple[tuple[Group, ...], ...]  # of each row of `_Rows`
    ranks: tuple[int, ...]  # numbers
    by_root: Integers  # nanoseconds, by row and rank

    def most_for(self, ranks: Sequence[int]) -> WaitedIn | None:
        wanted = set(ranks)
        at = [index for index, rank in enumerate(self.ranks) if rank in wanted]
        waits = self.by_root[:, at].sum(1)
        if waits.max(initial=0) <= 0:
            return None
        best = int(waits.argmax())
        groups = self.groups[self.rows[best].groups]
        theirs = [group for group in groups if wanted & set(group.ranks)] or list(groups)
        members = tuple(sorted({rank for group in theirs for rank in group.ranks}))
        part = round(int(waits[best]) / int(waits.sum()), 6)
        return WaitedIn(CALLS[self.rows[best].name], theirs[0].name, part, members)


class _Collecting:
    """Adds up what collectives and messages take, a block after the other."""

    def __init__(self, job: RanksOfJob, steady: Integers | None) -> None:
        self._job, self._steady = job, steady
        self._matching = Matching(job.ranks)
        self._clocks = clocks_of(job, self._matching.ranks)
        groups = self._matching.groups
        self._links = Links(job.ranks, groups)
        self._rows = _Rows.of(groups.groups, self._links.across)
        self._roots = Roots(self._matching.ranks)
        self._unmatched = Unmatched()
        self._left_out: set[int] = set()
        self._known: dict[_Row, int] = {}
        self._transfer, self._wait, self._rate, self._uneven = (_Distributions() for _ in range(4))
        self._sizes: Counter[tuple[int, int]] = Counter()
        self._sums = np.zeros((0, 4), np.int64)  # count, with an end, waited, imposed
        self._by = np.zeros((2, 0, len(job.ranks)), np.int64)  # waiting by last and by root
        self._steps = 0
        self._time_ns = np.zeros(len(job.ranks), np.int64)

    def take(self, block: Block) -> None:
        """Add what the collectives of a block took."""
        judged = self._judged(block)
        self._steps += int(judged.sum())
        self._time_ns += block.time_ns[:, judged].sum(1)
        deque(map(partial(self._take, judged), self._matching.take(block)), maxlen=0)

    def _take(self, judged: Integers, matches: Matches) -> None:
        self._unmatched = both(self._unmatched, matches.unmatched)
        self._left_out |= set(matches.left_out)
        meetings = Meetings.of(matches, self._matching.ranks, self._clocks)
        roots = self._roots.of(meetings)
        broken = int((meetings.broken & (matches.step != UNTOLD)).sum())
        self._unmatched = both(self._unmatched, Unmatched(broken=broken))
        if len(matches.first):
            self._add(meetings, roots, judged)

    def _judged(self, block: Block) -> Integers:
        if self._steady is None:
            return np.ones(len(block.numbers), bool)
        return np.isin(block.numbers, self._steady)

    def _add(self, meetings: Meetings, roots: Integers, judged: Integers) -> None:
        matches = meetings.matches
        counted = _counted(meetings, judged)
        row = self._row_of(meetings)
        wait = np.add.reduceat(meetings.wait_ns, matches.first)
        some = counted & meetings.known
        np.add.at(self._sums[:, 0], row[counted], 1)
        np.add.at(self._sums[:, 1], row[some], 1)
        np.add.at(self._sums[:, 2], row[some], wait[some])
        np.add.at(self._sums[:, 3], row[some], meetings.imposed_ns[some])
        for column, rank in enumerate((meetings.last, roots)):
            told = some & (rank != UNTOLD)
            np.add.at(self._by[column], (row[told], rank[told]), wait[told])
        self._transfer.add(row[some], meetings.transfer_ns[some])
        calls = np.repeat(some, matches.size)
        self._wait.add(np.repeat(row, matches.size)[calls], meetings.wait_ns[calls])
        size = meetings.size[counted]
        order, first = sorted_by((row[counted], size))
        for at, times in zip(
            order[first].tolist(), np.diff(first, append=len(order)).tolist(), strict=True
        ):
            self._sizes[int(row[counted][at]), int(size[at])] += times
        long = some & (meetings.transfer_ns >= SURE * meetings.error_ns)
        long &= (meetings.transfer_ns > 0) & (meetings.size > 0)
        rate = meetings.size[long].astype(float) / meetings.transfer_ns[long] * 1e9
        self._rate.add(row[long], rate.astype(np.int64))
        self._add_uneven(meetings, row, counted)
        self._links.add(meetings, some)

    def _add_uneven(self, meetings: Meetings, row: Integers, counted: Integers) -> None:
        matches = meetings.matches
        some = counted & (matches.name == _ALL_TO_ALL) & (meetings.size > 0)
        if some.any():
            all_ = np.add.reduceat(matches.calls.bytes, matches.first)[some]
            uneven = 1000 * meetings.size[some] * matches.size[some] // np.maximum(all_, 1)
            self._uneven.add(row[some], uneven)

    def _row_of(self, meetings: Meetings) -> Integers:
        """Return the row of the table of each; rows are made as they are met."""
        matches = meetings.matches
        is_message = matches.name >= MESSAGE
        across = self._links.across_of(meetings)
        name = np.where(is_message, SEND, matches.name)
        key = (self._rows.of_group[matches.group] * 2 + across) * len(CALLS) + name
        keys, at = np.unique(key, return_inverse=True)
        numbers = []
        for one in keys.tolist():
            groups, rest = divmod(one, 2 * len(CALLS))
            what = _Row(groups, rest >= len(CALLS), rest % len(CALLS))
            numbers.append(self._known.setdefault(what, len(self._known)))
        if (more := len(self._known) - len(self._sums)) > 0:
            self._sums = np.pad(self._sums, ((0, more), (0, 0)))
            self._by = np.pad(self._by, ((0, 0), (0, more), (0, 0)))
        row: Integers = np.array(numbers, np.int64)[at]
        return row

    def slow_links(self) -> tuple[SlowLink, ...]:
        """Return the links that are slow; what they cost is read by going through all again."""
        odd = self._links.odd()
        if not odd:
            return ()
        longer: dict[object, list[Integers]] = {link: [] for link in odd}
        steps: list[Integers] = []
        matching = Matching(self._job.ranks)
        for block in self._job.blocks("steps", "calls"):
            judged = self._judged(block)
            here = {link: np.zeros(len(judged), np.int64) for link in odd}
            for matches in matching.take(block):
                meetings = Meetings.of(matches, matching.ranks, self._clocks)
                some = _counted(meetings, judged) & meetings.known
                for link, (_, usual, _) in odd.items():
                    step, more = self._links.longer_ns(meetings, some, link, usual)
                    np.add.at(here[link], step, more)
            steps.append(block.time_ns.max(0)[judged])
            for link, values in here.items():
                longer[link].append(values[judged])
        whole = np.concatenate(steps)
        whole = whole / part_in_steps(self._job, whole)
        return tuple(
            self._links.told(link, figures, np.concatenate(longer[link]), whole)
            for link, figures in sorted(odd.items())
        )

    def result(self, links: tuple[SlowLink, ...]) -> Collectives:
        """Return what it all adds up to."""
        unmatched = both(self._unmatched, self._matching.rest())
        groups = self._matching.groups
        rows = tuple(self._known)
        table = [self._told(at, row) for at, row in enumerate(rows) if self._sums[at, 0]]
        table.sort(key=lambda one: (-one.wait_share, one.name, one.group, one.ranks, one.across))
        alone = np.flatnonzero((groups.seen == 1) & (groups.size > 1)).tolist()
        of_rows = tuple(tuple(groups.groups[at] for at in some) for some in self._rows.groups)
        numbers = tuple(one.place.rank for one in self._job.ranks)
        return Collectives(
            table=tuple(table),
            last=self._shares(self._by[0].sum(0), len(numbers)),
            root=self._shares(self._by[1].sum(0), len(numbers)),
            links=links,
            unmatched=unmatched,
            clocks=self._clocks,
            count=int(self._sums[:, 0].sum()),
            all_enqueued=bool(self._sums[:, 0].sum()) and not self._sums[:, 1].sum(),
            left_out=tuple(groups.groups[at] for at in sorted(self._left_out)),
            alone=tuple(groups.groups[at] for at in alone),
            _waits=_Waits(rows, of_rows, numbers, self._by[1]),
        )

    def _told(self, at: int, row: _Row) -> CollectiveRow:
        """Return a row of the table."""
        groups = self._matching.groups
        mine = [groups.groups[one] for one in self._rows.groups[row.groups]]
        count, ended, waited, imposed = self._sums[at].tolist()
        is_joint = row.name < ROOTED_FROM
        inside = groups.inside[list(self._rows.groups[row.groups])].any(0)
        spent = int(self._time_ns[inside].sum())
        rate = self._rate.quantile(at, 0.5) / 1e9 if self._told_rate(at) else None
        factor = bus_factor(CALLS[row.name], len(mine[0].ranks))
        if factor is None:
            rate = None
        uneven = self._uneven.quantile(at, 0.5) / 1000 if self._uneven.count(at) else None
        return CollectiveRow(
            name=CALLS[row.name],
            group=mine[0].name,
            description=mine[0].description,
            ranks=mine[0].ranks if len(mine) == 1 else (),
            groups=len(mine),
            across=row.across,
            count=count,
            bytes=self._usual_size(at),
            transfer_ns=self._transfer.quantiles(at),
            wait_ns=self._wait.quantiles(at),
            # Several that are under way at once are waited for together.
            wait_share=min(waited / spent, 1.0) if spent else 0.0,
            last=self._shares(self._by[0, at], _MOST_NAMED),
            root=self._shares(self._by[1, at], _MOST_NAMED),
            imposed_ns_per_step=round(imposed / max(self._steps * len(mine), 1))
            if is_joint and ended
            else None,
            algbw_gbs=rate,
            busbw_gbs=None if rate is None or factor is None else rate * factor,
            uneven=uneven,
        )

    def _told_rate(self, at: int) -> bool:
        """Return whether most of a row took long enough for that."""
        return 2 * self._rate.count(at) > int(self._sums[at, 1])

    def _usual_size(self, at: int) -> int | None:
        """Return the median of what those of a row move; None where they move nothing."""
        sizes = sorted((size, count) for (row, size), count in self._sizes.items() if row == at)
        half = sum(count for _, count in sizes) / 2
        seen = 0
        for size, count in sizes:
            seen += count
            if seen >= half:
                return size if size > 0 else None
        return None

    def _shares(self, waits: Integers, most: int) -> tuple[RankShare, ...]:
        """Return for whom others waited most, the lower rank of two first."""
        whole = int(waits.sum())
        order = np.argsort(-waits, kind="stable")[:most].tolist()
        numbers = self._matching.ranks.number
        return tuple(
            RankShare(int(numbers[at]), int(waits[at]) / whole) for at in order if waits[at] > 0
        )


class _Distributions:
    """Counts of whole numbers by kind, in bins of equal ratio: 0.4 % off at most."""

    def __init__(self) -> None:
        self._counts = np.zeros((0, _BINS), np.int64)

    def add(self, kind: Integers, values: Integers) -> None:
        """Count values; beside each stands its kind, a number from 0 on."""
        if not len(kind):
            return
        kinds = int(kind.max()) + 1
        if kinds > len(self._counts):
            more = np.zeros((kinds - len(self._counts), _BINS), np.int64)
            self._counts = np.concatenate((self._counts, more))
        at = (np.maximum(values, 1).astype(np.float64).view(np.int64) >> _SHIFT) - _ZERO
        # Between 0 and 1 there is nothing, and the bin of 1 holds only that.
        at = np.where(values > 0, np.minimum(at + 1, _BINS - 1), 0)
        np.add.at(self._counts.reshape(-1), kind * _BINS + at, 1)

    def count(self, kind: int) -> int:
        """Return how many values of a kind there are."""
        return int(self._counts[kind].sum()) if kind < len(self._counts) else 0

    def quantile(self, kind: int, share: float) -> int:
        """Return what a share of the values of a kind is not above; there is one at least."""
        below = np.cumsum(self._counts[kind])
        at = int(np.searchsorted(below, share * (int(below[-1]) - 1), side="right"))
        if at == 0:
            return 0
        edges = np.array([at - 1, at], np.int64) + _ZERO
        low, high = (edges << _SHIFT).view(np.float64).tolist()
        return round((low + high) / 2) if low > 1 << _BITS else int(low)

    def quantiles(self, kind: int) -> Quantiles | None:
        """Return those of a kind; None where there are no values."""
        if not self.count(kind):
            return None
        return Quantiles(self.quantile(kind, 0.5), self.quantile(kind, 0.95))


def _counted(meetings: Meetings, judged: Integers) -> Integers:
    """Return which meetings are of steps that are judged."""
    step = meetings.matches.step
    mask: Integers = (step != UNTOLD) & judged[step] & ~meetings.broken
    return mask


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
