"""Which calls of ranks are one collective or one message.

Calls of a group belong together by the number that torch gives them, where all members have it for
one collective of one size. With gloo messages count in it, so that it differs between stages of a
pipeline; then by how many of its kind went before, and else by how many did in the step. What some
member has not in a block of steps it may have in the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

import numpy as np

from dftrace_ai._reader import set_flags
from dftrace_ai.analysis.ranks.calls import RanksInOrder
from dftrace_ai.analysis.ranks.groups import CALLS, MESSAGE, ROOTED_FROM, SEND
from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.ranks.model import Unmatched
from dftrace_ai.analysis.ranks.ordering import any_in, begins, place_in_set, some_of, sorted_by
from dftrace_ai.analysis.ranks.partials import UNTIL, UNTOLD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.ranks.blocks import Block
    from dftrace_ai.analysis.ranks.calls import Calls
    from dftrace_ai.analysis.ranks.groups import GroupsOfJob
    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

CALLS_AT_ONCE: Final = 1 << 16
# Ranks of a host begin a step within a few steps of each other, whatever they wait for.
APART_NS: Final = 1_000_000_000
APART_STEPS: Final = 20
"""More are not matched at a time: what is made of them takes some 500 bytes each."""

MOST_ODD: Final = 0.05
"""Where more than this of a group's meetings are odd, its ranks or numbers are not what is said."""

# Whose ranks are sought, these start so much of a step apart, and ends that are so close are alike.
_LEAST_SPREAD: Final = 1e-4
_CLOSE_NS: Final = 50_000
_MOST_DIMENSIONS: Final = 5

# Members of these tell other sizes: each its part, or the root all of them.
_ANY_SIZE: Final = np.array(
    [name == "all_to_all" or ROOTED_FROM <= at < MESSAGE for at, name in enumerate(CALLS)], np.uint8
)

_Way = Literal["seq", "nth", "step"]
_OF_COLLECTIVES: Final[tuple[_Way, ...]] = ("seq", "nth", "step")
_OF_MESSAGES: Final[tuple[_Way, ...]] = ("seq", "step")


class MetCalls(NamedTuple):
    """Calls that belong to others, see `Calls`."""

    rank: Integers
    row: Integers
    step: Integers
    group: Integers
    name: Integers
    start_ns: Integers
    end_ns: Integers
    late_ns: Integers
    until: Integers
    bytes: Integers
    track: Integers
    peer: Integers


@dataclass(frozen=True, repr=False)
class Matches:
    """Calls that belong together."""

    calls: MetCalls  # those of a meeting side by side, ranks with one clock beside each other
    first: Integers  # where each meeting begins in them
    size: Integers  # how many it has
    meeting: Integers  # of each call
    group: Integers  # of each meeting, index in the groups of the job
    name: Integers  # of each meeting, index in `groups.CALLS`; of a message that of its first call
    # of each meeting, index in the steps of the block; `UNTOLD` where no call is in one
    step: Integers
    whole: Integers  # of each meeting, whether all members have a trace
    # of each call of a collective, the call before it of its rank and group; `UNTOLD` for none
    before: Integers
    by_time: Integers  # the calls in the order of their ranks and of time
    unmatched: Unmatched  # what is left out
    # groups that are, since more than `MOST_ODD` of their meetings are odd
    left_out: tuple[int, ...]


def in_order(ranks: Sequence[RankPartial]) -> RanksInOrder:
    """Put ranks in order; those of a group that nobody tells are those that leave together."""
    found = RanksInOrder.of(ranks)
    if told := _own_clocks(found, ranks):
        found = RanksInOrder.of(ranks, told)
    if len(ranks) < 2 or not _some_unknown(found.groups, ranks[0]):
        return found
    unknown = np.flatnonzero(found.groups.size == 0)
    block = next(RanksOfJob(tuple(ranks)).blocks("steps", "calls"), None)
    if block is None:
        return found
    calls = found.calls_of(block, 0, len(block.numbers))
    calls = calls.taken(np.flatnonzero((calls.name != UNTOLD) & (calls.name < ROOTED_FROM)))
    least = _LEAST_SPREAD * float(np.median(block.time_ns))
    for group in unknown.tolist():
        mine = calls.taken(np.flatnonzero(calls.group == group))
        if len(mine.rank):
            found = _with_members(found, group, mine, ranks, least)
    return found


def _own_clocks(found: RanksInOrder, ranks: Sequence[RankPartial]) -> tuple[str, ...] | None:
    """Return what the clock of each rank is called where some have their own; None where none has.

    A wall clock is set between the starts of two ranks, or a trace has times that cannot be. What
    such a rank says of collectives contradicts the others on its clock, so it is brought to theirs
    as another host's is. It is known by when the first steps begin that all ranks have.
    """
    if len(found.clocks) == len(ranks):
        return None
    block = next(RanksOfJob(tuple(ranks)).blocks("steps"), None)
    if block is None:
        return None
    start = block.tables.steps.rows.start_ns[block.at] + found.shift_ns[:, None]
    most = max(APART_NS, APART_STEPS * int(np.median(block.time_ns.max(axis=0))))
    apart = np.zeros(len(ranks), bool)
    for clock in range(len(found.clocks)):
        mine = np.flatnonzero(found.clock == clock)
        if len(mine) > 1:
            apart[mine] = _from_middle(start[mine]) > most
    if not apart.any():
        return None
    return tuple(
        f"{one.place.clock}, rank {one.place.rank}" if own else one.place.clock
        for one, own in zip(ranks, apart.tolist(), strict=True)
    )


def _from_middle(start: Integers) -> Integers:
    """Return how far ranks usually are from the one in the middle, by their starts of steps."""
    middle = np.sort(start, axis=0)[(len(start) - 1) // 2]
    usual: Integers = np.median(np.abs(start - middle), axis=1)
    return usual


def _some_unknown(groups: GroupsOfJob, one: RankPartial) -> bool:
    """Return whether there are groups whose ranks nobody tells, or calls without a group."""
    named = any(group.name and not group.ranks for group in groups.groups)
    number = min(one.chunks, default=None)
    return named or (number is not None and bool((one.chunks[number].calls.group == UNTOLD).any()))


def _with_members(
    found: RanksInOrder, group: int, calls: Calls, ranks: Sequence[RankPartial], least_ns: float
) -> RanksInOrder:
    """Return ranks in order with the members of a group, where ends tell them."""
    some = np.unique(calls.rank).tolist()
    tried: list[tuple[float, int, RanksInOrder]] = []
    for cells in _cells(some, ranks):
        if any(len(set(found.clock[cell].tolist())) > 1 for cell in cells):
            continue  # whether they leave together is not seen
        groups = found.groups.with_ranks(group, cells, found.number)
        of_rank = np.full(len(ranks), group)
        for at, cell in enumerate(cells):
            of_rank[cell] = len(found.groups.groups) + at
        these = replace(found, groups=groups)
        met = _found(calls._replace(group=of_rank[calls.rank]), these).matches
        if len(met.calls.rank) < (1 - MOST_ODD) * len(calls.rank) or not len(met.first):
            continue
        starts, ends = (
            float(
                np.median(np.maximum.reduceat(at, met.first) - np.minimum.reduceat(at, met.first))
            )
            for at in (met.calls.start_ns, met.calls.end_ns)
        )
        if 4 * ends <= starts and starts >= least_ns:
            tried.append((ends, max(map(len, cells)), these))
    if not tried:
        return found
    close = max(3 * min(tried, key=itemgetter(0))[0], _CLOSE_NS)
    return max((one for one in tried if one[0] <= close), key=itemgetter(1))[2]


def _cells(some: Sequence[int], ranks: Sequence[RankPartial]) -> list[list[list[int]]]:
    """Return in what ways ranks are in groups: those that differ in some dimensions are in one."""
    layouts = [dict(ranks[at].place.layout) for at in some]
    dimensions = sorted(set.intersection(*map(set, layouts)))[:_MOST_DIMENSIONS]
    ways = [[list(some)]]
    for count in range(1, len(dimensions)):
        for chosen in combinations(dimensions, count):
            cells: dict[tuple[int, ...], list[int]] = {}
            for at, layout in zip(some, layouts, strict=True):
                rest = tuple(layout[name] for name in dimensions if name not in chosen)
                cells.setdefault(rest, []).append(at)
            way = [cell for cell in cells.values() if len(cell) > 1]
            if way and way not in ways:
                ways.append(way)
    return ways


def matched(block: Block, ranks: RanksInOrder, steps: int) -> Matches:
    """Return what belongs together in the first steps of a block alone."""
    return _found(ranks.calls_of(block, 0, min(steps, len(block.numbers))), ranks).matches


def matched_in_pieces(block: Block, ranks: RanksInOrder, steps: int) -> Iterator[Matches]:
    """Yield the same, of some of these steps at a time: who looks at each need not hold all."""
    end = min(steps, len(block.numbers))
    edges = _edges(block.call_count * end // max(len(block.numbers), 1), end)
    for (first, last), part in zip(pairwise(edges), block.with_calls(edges), strict=True):
        yield _found(ranks.calls_of(part, first, last), ranks).matches


def _edges(calls: int, steps: int) -> list[int]:
    """Return from which step to before which about so many calls are looked at, at a time."""
    pieces = min(max(1, -(-calls // CALLS_AT_ONCE)), max(steps, 1))
    edges: list[int] = np.linspace(0, steps, pieces + 1).astype(int).tolist()
    return edges


def meetings_in(block: Block, ranks: RanksInOrder) -> Integers:
    """Return of the calls of a block alone which belong together: by a number from 0, or not."""
    table = block.tables.calls
    met = np.full(len(table.rows.name), UNTOLD)
    matches = matched(block, ranks, len(block.numbers))
    met[table.edges[matches.calls.rank] + matches.calls.row] = matches.meeting
    return met


class Matching:
    """Matches a block of steps after the other."""

    def __init__(self, ranks: Sequence[RankPartial]) -> None:
        self.ranks = in_order(ranks)
        self.groups: GroupsOfJob = self.ranks.groups
        self._left: Calls | None = None

    def take(self, block: Block) -> Iterator[Matches]:
        """Yield what belongs together of a block, and of what was left of the one before it.

        Of a block that was read without its calls they are, of some steps at a time.
        """
        edges = _edges(block.call_count, len(block.numbers))
        if self._left is not None:
            none = np.full(len(self._left.row), UNTOLD)
            self._left = self._left._replace(row=none, step=none)
        for (first, end), part in zip(pairwise(edges), block.with_calls(edges), strict=True):
            calls = self.ranks.calls_of(part, first, end)
            if self._left is not None and len(self._left.rank):
                calls = self._left.and_then(calls)
                calls = calls.taken(sorted_by((self.ranks.place[calls.rank],))[0])
            found = _found(calls, self.ranks)
            # What lacks somebody for the second time is not looked for any longer.
            left = calls.taken(found.lacking[~calls.left[found.lacking]])
            self._left = left._replace(left=np.ones(len(left.rank), bool))
            coming = [found.matches]
            del calls, found  # they are as large as what is made of them
            yield coming.pop()  # and that is not held here while the next is made

    def rest(self) -> Unmatched:
        """Return what is left when all blocks have been taken."""
        left, self._left = self._left, None
        return Unmatched() if left is None else _found(left, self.ranks).matches.unmatched


def both(one: Unmatched, other: Unmatched) -> Unmatched:
    """Return what is left out of two parts."""
    return Unmatched(
        one.collectives + other.collectives,
        one.messages + other.messages,
        one.broken + other.broken,
    )


class _Found(NamedTuple):
    """What was matched of some calls, and the rows of those that lack others."""

    matches: Matches
    lacking: Integers


def _found(calls: Calls, ranks: RanksInOrder) -> _Found:
    groups = ranks.groups
    with_others = (groups.inside & (groups.seen > 1)[:, None]).reshape(-1)
    inside = with_others.take(calls.group * len(ranks.place) + calls.rank)
    is_message = calls.name >= MESSAGE
    collectives = np.flatnonzero(inside & ~is_message & (calls.name != UNTOLD))
    # Whose other side nobody tells, or has no trace, cannot be matched.
    messages = np.flatnonzero(is_message)
    messages = messages[np.isin(calls.peer[messages], ranks.number)]
    parts = _by_the_best(calls, collectives, _OF_COLLECTIVES, ranks)
    parts += _by_the_best(calls, messages, _OF_MESSAGES, ranks)
    unmatched, left_out = Unmatched(), np.zeros(len(groups.groups), bool)
    kept = [np.zeros(0, np.int64)]
    by_seq = [np.zeros(0, bool)]
    lacking = [np.zeros(0, np.int64)]
    sizes = [np.zeros(0, np.int64)]
    for sets in parts:
        odd = (sets.wrong | sets.broken) & ~sets.lacking
        bad = sets.share_of(odd, ~sets.lacking, len(groups.groups)) > MOST_ODD
        left_out |= bad
        good = ~(sets.wrong | sets.broken | sets.lacking | bad[sets.group])
        unmatched = both(unmatched, sets.unmatched(good))
        lacking.append(sets.rows_of(sets.lacking))
        kept.append(sets.rows_of(good))
        by_seq.append(np.full(int(good.sum()), sets.by_seq))
        sizes.append(sets.size[good])
    rows, size = np.concatenate(kept), np.concatenate(sizes)
    met = MetCalls(*(some_of(getattr(calls, name), rows) for name in MetCalls._fields))
    first = np.cumsum(size) - size
    meeting = np.repeat(np.arange(len(size)), size)
    group, name = met.group[first], met.name[first]
    by_time = np.full(len(calls.rank), UNTOLD, np.int64)
    by_time[rows] = np.arange(len(rows))
    by_time = by_time[by_time != UNTOLD]
    matches = Matches(
        calls=met,
        first=first,
        size=size,
        meeting=meeting,
        group=group,
        name=name,
        step=np.maximum.reduceat(met.step, first) if len(first) else first,
        whole=(name >= MESSAGE) | (groups.seen == groups.size)[group],
        before=_before(met, first, meeting, np.concatenate(by_seq)),
        by_time=by_time,
        unmatched=unmatched,
        left_out=tuple(np.flatnonzero(left_out).tolist()),
    )
    return _Found(matches, np.concatenate(lacking))


def _before(met: MetCalls, first: Integers, meeting: Integers, by_seq: Integers) -> Integers:
    """Return of each call of a collective the one before it of its rank and group."""
    # All collectives of a group have the same members, in the same order. By its numbers they lie
    # in that; by times where there are none, for a clock may be set back.
    at = np.flatnonzero(met.name[first] < MESSAGE)
    place = np.where(by_seq, np.arange(len(first)), met.start_ns[first])
    order = at[np.lexsort((place[at], met.group[first[at]]))]
    follows = met.group[first[order[1:]]] == met.group[first[order[:-1]]]
    back = np.zeros(len(first), np.int64)
    back[order[1:][follows]] = (first[order[1:]] - first[order[:-1]])[follows]
    back = back.take(meeting)
    return np.where(back == 0, UNTOLD, np.arange(len(met.rank)) - back)


def _by_the_best(
    calls: Calls, rows: Integers, ways: Sequence[_Way], ranks: RanksInOrder
) -> list[_Sets]:
    """Match the calls of each group by the first way that leaves little over, else the best."""
    count = len(ranks.groups.groups)
    least, chosen = np.full(count, np.inf), np.full(count, UNTOLD)
    tried: list[tuple[int, _Sets]] = []
    for number, way in enumerate(ways):
        rest = rows[least[calls.group[rows]] > MOST_ODD]
        if not len(rest):
            break
        sets = _Sets.of(calls, _with_place(calls, rest, way), way, ranks)
        odd = sets.missed | ((sets.wrong | sets.broken) & ~sets.lacking)
        share = sets.share_of(odd, sets.missed | ~sets.lacking, count)
        share[np.bincount(sets.group, minlength=count) == 0] = np.inf
        better = share < least
        least[better], chosen[better] = share[better], number
        tried.append((number, sets))
    return [sets.of_groups(chosen == number) for number, sets in tried]


_PLACE: Final[dict[_Way, str]] = {"seq": "seq", "nth": "nth", "step": "number"}


def _with_place(calls: Calls, rows: Integers, way: _Way) -> Integers:
    """Return the calls that a way can tell a place of; of a group it has to be all, but by step."""
    told: Integers = some_of(getattr(calls, _PLACE[way]), rows) != UNTOLD
    if way != "step" and not told.all():
        told = ~np.isin(calls.group[rows], calls.group[rows[~told]])
    some: Integers = rows if told.all() else rows[told]
    return some


@dataclass(frozen=True, repr=False)
class _Sets:
    """Calls that one way puts together, and what is odd about them."""

    rows: Integers  # of the calls, those of a set side by side
    first: Integers  # where each set begins
    size: Integers  # how many calls it has
    group: Integers  # of each set
    common: Integers  # whether it is of a step that all ranks have
    wrong: Integers  # of which names or sizes differ, or which a rank has twice
    broken: Integers  # which somebody left before another had come
    lacking: Integers  # which a member with a trace lacks
    missed: Integers  # lacking, though all members have others before and after
    old: Integers  # whether all its calls were left of what was matched before
    is_message: bool  # whether these are messages
    by_seq: bool  # whether torch's numbers put them together, so that they are in that order

    @classmethod
    def of(cls, calls: Calls, rows: Integers, way: _Way, ranks: RanksInOrder) -> _Sets:
        columns = _columns(calls, rows, way, ranks)
        order, first = sorted_by(columns)
        rows = rows.take(order)
        size = np.diff(first, append=len(rows))
        group, name = calls.group[rows[first]], calls.name[rows[first]]
        is_message = _is_message(name)
        flags = _flags(calls, rows, first, ranks.clock)
        # Of a message one sends, and one receives.
        wrong = flags.any_of("mixed bytes", "same names" if is_message else "other names")
        if not is_message:
            wrong |= flags.any_of("rank twice")
        want = np.full(len(first), 2) if is_message else ranks.groups.seen[group]
        lacking = size < want
        # Elsewhere an end says nothing of others, or is none.
        broken = flags.any_of("left before") & ~flags.any_of("without end")
        sets = cls(
            rows=rows,
            first=first,
            size=size,
            group=group,
            common=any_in(some_of(calls.common, rows), first),
            wrong=wrong | (size > want),
            broken=broken & (name < ROOTED_FROM),
            lacking=lacking,
            missed=lacking,
            old=~any_in(~some_of(calls.left, rows), first),
            is_message=is_message,
            by_seq=way == "seq",
        )
        if not lacking.any():
            return sets
        if way == "step":
            missed = sets.common
        else:
            *whose, place = (column[order] for column in columns)
            side = (calls.name if is_message else calls.rank)[rows]
            missed = _inner(whose, place, side, first, want)
        return replace(sets, missed=lacking & missed)

    def rows_of(self, some: Integers) -> Integers:
        """Return the rows of some sets."""
        if some.all():
            return self.rows
        rows: Integers = self.rows[np.repeat(some, self.size) if some.any() else slice(0)]
        return rows

    def share_of(self, some: Integers, whole: Integers, count: int) -> Integers:
        """Return by group the share of some sets in others; 0 where there are none of these."""
        part, rest = (np.bincount(self.group[mask], minlength=count) for mask in (some, whole))
        share: Integers = part / np.maximum(rest, 1)
        return share

    def of_groups(self, wanted: Integers) -> _Sets:
        """Return those of some groups."""
        keep = wanted[self.group]
        if keep.all():
            return self
        size = self.size[keep]
        return replace(
            self,
            rows=self.rows_of(keep),
            first=np.cumsum(size) - size,
            size=size,
            group=self.group[keep],
            common=self.common[keep],
            wrong=self.wrong[keep],
            broken=self.broken[keep],
            lacking=self.lacking[keep],
            missed=self.missed[keep],
            old=self.old[keep],
        )

    def unmatched(self, good: Integers) -> Unmatched:
        """Count what is left out when some are not; what may be completed later is not yet."""
        lost = self.common & ~good & np.where(self.lacking, self.old, ~self.broken)
        broken = self.common & self.broken & ~self.lacking
        count = int(lost.sum())
        of = (0, count) if self.is_message else (count, 0)
        return Unmatched(*of, int(broken.sum()))


def _columns(calls: Calls, rows: Integers, way: _Way, ranks: RanksInOrder) -> tuple[Integers, ...]:
    """Return in what calls agree that belong together by a way; the place is the last of it."""
    group, name, rank = (some_of(one, rows) for one in (calls.group, calls.name, calls.rank))
    whose: tuple[Integers, ...]
    if _is_message(name):
        peer, own = calls.peer[rows], ranks.number[rank]
        sends = name == SEND
        whose = (group, np.where(sends, own, peer), np.where(sends, peer, own), calls.tag[rows])
    else:
        whose = (group,) if way == "seq" else (group, name)
    if way != "step":
        return (*whose, some_of(calls.seq if way == "seq" else calls.nth, rows))
    number = calls.number[rows]
    return (*whose, number, place_in_set(*sorted_by((rank, *whose, name, number))))


def _is_message(name: Integers) -> bool:
    return bool(len(name)) and bool(name[0] >= MESSAGE)


class _Flags(NamedTuple):
    """What is said of sets, a byte of bits each."""

    bits: Integers

    def any_of(self, *flags: _Flag) -> Integers:
        """Return which sets have one of some flags."""
        mask: Integers = (self.bits & sum(_FLAGS[flag] for flag in flags)) != 0
        return mask


_Flag = Literal[
    "other names",
    "same names",
    "mixed bytes",
    "rank twice",
    "left before",
    "without end",
]
# As `SetFlag` of the native reader has them: rows that follow each other, ends on one clock.
_FLAGS: Final[dict[_Flag, int]] = {flag: 1 << at for at, flag in enumerate(get_args(_Flag))}


def _flags(calls: Calls, rows: Integers, first: Integers, clock: Integers) -> _Flags:
    its = (
        calls.rank,
        calls.name,
        calls.start_ns,
        calls.end_ns,
        calls.until,
        calls.bytes,
    )
    bits = set_flags(its, rows, first, clock, _ANY_SIZE, UNTIL["waited"])
    return _Flags(np.frombuffer(bits, np.uint8))


def _inner(
    whose: Sequence[Integers], place: Integers, side: Integers, first: Integers, want: Integers
) -> Integers:
    """Return which sets lie between others of all sides, in the order of a place."""
    order, runs = sorted_by((*whose, side))
    low, high = (how.reduceat(place[order], runs) for how in (np.minimum, np.maximum))
    groups = begins(*(column[order][runs] for column in whose))
    group_of = np.empty(len(order), np.int64)
    sides = np.diff(groups, append=len(runs))
    group_of[order] = np.repeat(
        np.repeat(np.arange(len(groups)), sides), np.diff(runs, append=len(order))
    )
    at, here = group_of[first], place[first]
    from_, to = np.maximum.reduceat(low, groups)[at], np.minimum.reduceat(high, groups)[at]
    inner: Integers = (from_ <= here) & (here <= to) & (sides[at] >= want)
    return inner
