"""How the clocks of hosts differ, by collectives that all leave together.

Nobody leaves such a collective before the last has come. So in true time an end on any host is not
before a start on another, which bounds how far two clocks can be apart, and ends lie close
together, which says how far they usually are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.clock_fitting import (
    FEWEST_IN_COMMON,
    Line,
    PairOfClocks,
    fitted,
    least,
)
from dftrace_ai.analysis.ranks.groups import MESSAGE, ROOTED_FROM, SEND
from dftrace_ai.analysis.ranks.matching import in_order, matched_in_pieces
from dftrace_ai.analysis.ranks.ordering import any_in, begins
from dftrace_ai.analysis.ranks.partials import UNTIL, UNTOLD
from dftrace_ai.analysis.texts import time_text
from dftrace_ai.wording import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.ranks.calls import RanksInOrder
    from dftrace_ai.analysis.ranks.clock_fitting import ClockState, Reason
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.matching import Matches
    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

_STRETCHES: Final = 8
_CALLS: Final = 1 << 20
_PARTS: Final = 8

# Of a group so many collectives of each block are kept, and so many rows in all.
_A_BLOCK: Final = 1024
_MOST_ROWS: Final = 400_000

# More than both a host does not see each end later than others.
_LATEST_NS: Final = 1_000_000
_LATEST_PART: Final = 4

USUALLY: Final = 2
"""An order of arrivals is told where it is clear by so many times what ends usually are off by."""

# Of clocks that are not known nobody tells how far apart ends are seen.
_NEVER_CLEAR_NS: Final = 1 << 61

# A reference that all others seem to jump beside was itself set; so many are tried.
_MOST_REFERENCES: Final = 3


class _Jump(NamedTuple):
    """A clock was set."""

    clock: int
    at_ns: int  # by itself, in the middle of before and after
    back_ns: int  # by how much it was set back
    unsure_ns: int  # within how long it is not known when


class ClockOfHost(NamedTuple):
    """How the clock of a host differs from that of the reference."""

    clock: str
    host: str
    state: ClockState
    offset_ns: int = 0  # what it shows more, in the middle of what they have in common
    ppm: float | None = None  # by how many millionths it is faster; None where that is not known
    typical_ns: int | None = None  # 95 of 100 collectives say the same within it
    certain_ns: int | None = None  # more it cannot be
    shared: int = 0  # collectives in common with the host that it is compared with
    reason: Reason = ""
    contradiction_ns: int = 0  # by how much bounds contradict each other
    jumps_ns: tuple[int, ...] = ()  # by how much it was set while it ran, each time
    # By how much more than their errors two ways to it differ; 0 where they agree, or one is known.
    circle_ns: int = 0
    # By so much its ranks may see each end later than others do, which looks as if it were ahead.
    late_ns: int = 0
    rank: int | None = None  # the one that has it by itself, on a host of several; None for a host

    def told(self, *, certain: bool = False) -> str:
        """Return how well it is known, or why it is not: ``within 40 us``."""
        if self.state == "not calibrated":
            return {
                "": "not known",
                "none in common": "no collective in common with another host",
                "few in common": f"{counted(self.shared, 'collective')} in common, "
                f"{FEWEST_IN_COMMON} are needed",
                "enqueued": "its collectives on a GPU were only seen to be enqueued",
                "contradiction": "the bounds contradict each other by "
                f"{time_text(self.contradiction_ns)} (a clock jumped)",
            }[self.reason]
        far = self.certain_ns if certain or self.typical_ns is None else self.typical_ns
        return "not known" if far is None else f"within {time_text(far)}"


@dataclass(frozen=True, repr=False)
class Clocks:
    """The clocks of a job's hosts, brought to one."""

    hosts: tuple[ClockOfHost, ...]  # those of `RanksInOrder.clocks`
    lines: tuple[Line, ...]  # of each
    clock: Integers  # of each rank, its index in these
    shift_ns: Integers  # of each rank: what is added to its times to have those of its clock

    @property
    def uncertainty_ns(self) -> int | None:
        """So far clocks that are calibrated agree; None where none is, of several."""
        if len(self.hosts) == 1:
            return 0
        far = [_far(one) for one in self.hosts if one.state in {"calibrated", "bounded"}]
        return max(far, default=None)

    def beyond(self, error_ns: int, *, certain: bool = False) -> tuple[str, ...]:
        """Return the hosts whose clocks are known less well than to within an error, and why.

        Args:
            error_ns: nanoseconds.
            certain: by what it is at most, not by what it usually is.
        """
        found = []
        for one in self.hosts:
            far = one.certain_ns if certain or one.state == "bounded" else one.typical_ns
            if one.state not in _KNOWN or far is None or far > error_ns:
                found.append(f"{quoted(one.host)}: {one.told(certain=certain)}")
        return tuple(dict.fromkeys(found))

    @property
    def unjoined(self) -> tuple[str, ...]:
        """Hosts whose times cannot be compared with those of others."""
        apart = (one.host for one in self.hosts if one.state not in _KNOWN)
        return tuple(dict.fromkeys(apart))

    def corrected(self, rank: int, times: Integers) -> Integers:
        """Return times of a rank, its index in the job, by the clock of the reference."""
        shifted: Integers = times + self.shift_ns[rank]
        return self.lines[int(self.clock[rank])].of(shifted)

    def of_clock(self, times: Integers, clock: Integers) -> Integers:
        """Return times of clocks, whose indices stand beside them, by that of the reference."""
        offset, at = (
            np.array([getattr(line, what) for line in self.lines], np.int64)
            for what in ("offset", "at")
        )
        rate = np.array([line.rate for line in self.lines])
        moved = np.rint(rate[clock] * (times - at[clock])).astype(np.int64)
        found: Integers = times - offset[clock] - moved
        for number, line in enumerate(self.lines):
            if line.later:
                found[clock == number] = line.of(times[clock == number])
        return found

    def shown_twice(self, times: Integers, clock: Integers) -> Integers:
        """Return which times clocks have shown twice, since they were set back."""
        found: Integers = np.zeros(len(times), bool)
        for jump in self._jumps():
            found |= (clock == jump.clock) & (2 * np.abs(times - jump.at_ns) <= jump.back_ns)
        return found

    def set_within(self, starts: Integers, ends: Integers, clock: Integers) -> Integers:
        """Return between which times clocks may have been set: they tell no durations."""
        found: Integers = np.zeros(len(starts), bool)
        for jump in self._jumps():
            for edge in (jump.at_ns - jump.back_ns / 2, jump.at_ns + jump.back_ns / 2):
                near = (starts <= edge + jump.unsure_ns) & (ends >= edge - jump.unsure_ns)
                found |= near & (clock == jump.clock)
        return found

    def _jumps(self) -> Iterator[_Jump]:
        for number, line in enumerate(self.lines):
            before = line
            for begin, after in line.later:
                at = np.array(begin)
                back = int(after.of(at)) - int(before._replace(later=()).of(at))
                yield _Jump(number, begin, back, after.unsure)
                before = after

    def with_late(self, late_ns: Sequence[int | None]) -> Clocks:
        """Return the same, told of each how late its ends may be, see `late_ends`."""
        # What is certain of the others is what is of the one that they are held against.
        most = max((one.certain_ns or 0 for one in self.hosts), default=0)
        hosts = tuple(
            one._replace(late_ns=min(_LATEST_NS if late is None else late, one.certain_ns or most))
            for one, late in zip(self.hosts, late_ns, strict=True)
        )
        return replace(self, hosts=hosts)

    @property
    def unsure_ns(self) -> Integers:
        """Of each clock what an order of arrivals has to be clear by beyond that of others."""
        late, error = np.array([one.late_ns for one in self.hosts], np.int64), self.error_ns
        unsure: Integers = np.where(error < 0, _NEVER_CLEAR_NS, error * USUALLY + late)
        return unsure

    @property
    def error_ns(self) -> Integers:
        """How far each clock is from the reference, see `_far`."""
        return np.array([_far(one) for one in self.hosts], np.int64)


_KNOWN: Final = frozenset({"reference", "calibrated", "bounded"})


def _far(one: ClockOfHost) -> int:
    """Return how far a clock is from the reference: usually, else at most; -1 for not known."""
    if one.state not in _KNOWN:
        return -1
    return one.typical_ns if one.typical_ns is not None else one.certain_ns or 0


def clocks_of(job: RanksOfJob, order: RanksInOrder | None = None) -> Clocks:
    """Bring the clocks of a job's hosts to one; of a long run some stretches are read for it."""
    order = order or in_order(job.ranks)
    samples = ClockSamples(job.ranks, order)
    numbers = sorted(job.ranks[0].chunks) if len(order.clocks) > 1 else []
    chosen = np.linspace(0, len(numbers) - 1, min(len(numbers), _STRETCHES)).round().astype(int)
    for at in chosen.tolist():
        if (block := job.block(numbers[at], "steps")) is not None:
            calls = block.call_count
            steps = _CALLS * len(block.numbers) // (len(chosen) * max(calls, 1))
            for matches in matched_in_pieces(block, order, max(steps, 1)):
                samples.add(matches)
                del matches  # the next ones are made meanwhile
        del block
    return samples.clocks()


class ClockSamples:
    """Of collectives that several clocks were in: who came last on each, and who left first."""

    def __init__(self, ranks: Sequence[RankPartial], order: RanksInOrder) -> None:
        self._ranks = ranks
        self._order = order
        self._next = 0
        self._every = 1
        none = np.zeros(0, np.int64)
        self._rows = _Rows(none, none, none, none, none)
        self._kinds: dict[tuple[int, int, int], int] = {}
        self._messages = _Messages(none, none, none, none, none)
        self._parts = 0
        self._enqueued: set[int] = set()

    def add(self, matches: Matches) -> None:
        """Take what collectives and messages of a block tell."""
        if len(self._order.clocks) < 2 or not len(matches.first):
            return
        calls, order = matches.calls, self._order
        clock = order.clock[calls.rank]
        first_clock, last_clock = (how.reduceat(clock, matches.first) for how in _LOW_HIGH)
        several = first_clock != last_clock
        ends = ~any_in(calls.until > UNTIL["waited"], matches.first)
        joint = matches.name < ROOTED_FROM
        lost = np.repeat(several & joint & ~ends, matches.size)
        self._enqueued |= set(np.unique(clock[lost]).tolist())
        chosen = self._chosen(np.flatnonzero(several & joint & ends), matches)
        if len(chosen):
            self._rows = self._rows.and_then(self._rows_of(matches, clock, chosen))
        self._messages = self._messages.and_then(
            self._messages_of(matches, clock, np.flatnonzero(several & (matches.name >= MESSAGE)))
        )
        while len(self._rows.clock) > _MOST_ROWS:
            self._every *= 2
            self._rows = self._rows.taken(self._rows.sample % 2 == 0)
            self._rows = self._rows._replace(sample=self._rows.sample // 2)
            self._next = (self._next + 1) // 2

    def _chosen(self, meetings: Integers, matches: Matches) -> Integers:
        """Return some of each group, evenly."""
        most = max(_A_BLOCK // self._every, 1)
        group = matches.group[meetings]
        first = begins(group) if len(group) else group
        size = np.diff(first, append=len(group))
        place = np.arange(len(group)) - np.repeat(first, size)
        all_ = np.maximum(np.repeat(size, size), most)
        taken = (place + 1) * most // all_ != place * most // all_
        some: Integers = meetings[taken]
        return some

    def _rows_of(self, matches: Matches, clock: Integers, chosen: Integers) -> _Rows:
        calls, size = matches.calls, matches.size[chosen]
        at = np.repeat(matches.first[chosen] - (np.cumsum(size) - size), size)
        at += np.arange(len(at))
        sample = np.repeat(np.arange(len(chosen)) + self._next, size)
        self._next += len(chosen)
        first = begins(sample, clock[at])
        came = np.maximum.reduceat(calls.start_ns[at], first)
        left = np.minimum.reduceat(calls.end_ns[at], first)
        kind = np.repeat(self._kinds_of(matches, chosen), size)
        return _Rows(sample[first], clock[at][first], kind[first], came, left)

    def _kinds_of(self, matches: Matches, chosen: Integers) -> Integers:
        """Return numbers of what takes as long: of one group, name and size."""
        size = np.maximum.reduceat(matches.calls.bytes, matches.first)
        rows = np.stack([matches.group, matches.name, size], 1)[chosen]
        kinds, which = np.unique(rows, axis=0, return_inverse=True)
        known = (self._kinds.setdefault((a, b, c), len(self._kinds)) for a, b, c in kinds.tolist())
        numbers: Integers = np.array([*known], np.int64)[which.ravel()]
        return numbers

    def _messages_of(self, matches: Matches, clock: Integers, chosen: Integers) -> _Messages:
        """Return of each pair of clocks the messages that were fastest, of each part of a block."""
        calls, one = matches.calls, matches.first[chosen]
        sends = calls.name[one] == SEND
        send, receive = np.where(sends, one, one + 1), np.where(sends, one + 1, one)
        told = (calls.until[receive] <= UNTIL["waited"]) & (matches.step[chosen] != UNTOLD)
        send, receive, step = send[told], receive[told], matches.step[chosen][told]
        part = step * _PARTS // (int(step.max(initial=0)) + 1) + self._parts
        self._parts += _PARTS
        took = calls.end_ns[receive] - calls.start_ns[send]
        order = np.lexsort((took, part, clock[receive], clock[send]))
        send, receive, part = send[order], receive[order], part[order]
        best = begins(clock[send], clock[receive], part) if len(part) else order
        send, receive, part = send[best], receive[best], part[best]
        return _Messages(
            clock[send], clock[receive], part, calls.start_ns[send], calls.end_ns[receive]
        )

    def clocks(self) -> Clocks:
        """Return how the clocks differ by what has been taken."""
        found = _Calibration(
            self._rows, self._messages, self._ranks, self._order, self._enqueued
        ).clocks()
        rows = self._rows
        rows = rows.taken(~found.set_within(rows.came_ns, rows.left_ns, rows.clock))
        return found.with_late(late_ends(rows, [*self._kinds], len(found.hosts)))


class _Rows(NamedTuple):
    """What samples say of each clock in them."""

    sample: Integers
    clock: Integers
    kind: Integers
    came_ns: Integers  # the latest start
    left_ns: Integers  # the first end

    def taken(self, some: Integers) -> _Rows:
        """Return some of them."""
        return _Rows(*(column[some] for column in self))

    def and_then(self, other: _Rows) -> _Rows:
        """Return these and others."""
        return _Rows(*(np.concatenate(both) for both in zip(self, other, strict=True)))


def _is_set_back(rows: _Rows) -> bool:
    """Return whether a clock shows that something of a kind was over before the one before it."""
    order = np.lexsort((rows.sample, rows.kind))
    earlier = np.diff(rows.left_ns[order]) < 0
    return bool((earlier & (np.diff(rows.kind[order]) == 0)).any())


def late_ends(rows: _Rows, kinds: Sequence[tuple[int, ...]], clocks: int) -> list[int | None]:
    """Return by how much the ranks of each clock may see ends later than others; None if unknown.

    The last to come is there for as long as the transfer takes, and until it has seen the end. So
    of a host that was the last now and then the shortest times are those of the others; where they
    are longer, it was never the last, or sees each end so much later: up to `_LATEST_NS`, or so
    much of the transfer as ranks of a ring or tree may leave apart, beyond which it was early.
    """
    most = np.iinfo(np.int64).max
    least = np.full((len(kinds), clocks), most)
    count = np.zeros((len(kinds), clocks), np.int64)
    np.minimum.at(least, (rows.kind, rows.clock), rows.left_ns - rows.came_ns)
    np.add.at(count, (rows.kind, rows.clock), 1)
    least[count < FEWEST_IN_COMMON] = most
    late: dict[tuple[int, int], int] = {}
    for kind, of in zip(kinds, least, strict=True):
        there = np.flatnonzero(of < most)
        for clock in there.tolist() if len(there) > 1 else ():
            shortest = int(of[there].min())
            beyond = min(int(of[clock]) - shortest, max(_LATEST_NS, shortest // _LATEST_PART))
            place = kind[0], clock
            late[place] = min(late.get(place, beyond), beyond)
    found: list[int | None] = [None] * clocks
    for (_, clock), beyond in late.items():
        found[clock] = max(found[clock] or 0, beyond)
    return found


class _Messages(NamedTuple):
    """When messages were sent, and were there, by two clocks."""

    sender: Integers  # clock
    receiver: Integers
    part: Integers  # of the run
    sent_ns: Integers
    there_ns: Integers

    def and_then(self, other: _Messages) -> _Messages:
        """Return these and others."""
        return _Messages(*(np.concatenate(both) for both in zip(self, other, strict=True)))


_LOW_HIGH: Final = (np.minimum, np.maximum)


class _Calibration:
    """Brings clocks to one: that which has most in common with others."""

    def __init__(
        self,
        rows: _Rows,
        messages: _Messages,
        ranks: Sequence[RankPartial],
        order: RanksInOrder,
        enqueued: set[int],
    ) -> None:
        self._messages, self._ranks, self._order = messages, ranks, order
        self._enqueued = enqueued
        count = len(order.clocks)
        by_clock = np.argsort(rows.clock, kind="stable")
        sizes = np.bincount(rows.clock, minlength=count)
        parts = np.split(by_clock, np.cumsum(sizes)[:-1])
        self._of = [rows.taken(part) for part in parts]
        # The lowest rank of each clock; ranks are in order.
        lowest = np.full(count, len(ranks))
        np.minimum.at(lowest, order.clock, np.arange(len(ranks)))
        self._lowest = lowest
        # A clock that was set back shows no order of times, and one rank is no host.
        back = np.array([_is_set_back(rows) for rows in self._of[:count]], bool)
        own = np.array([self._rank_of(at) is not None for at in range(count)], bool)
        best: list[int] = np.lexsort((lowest, -sizes, own, back)).tolist()
        self._references = best[:_MOST_REFERENCES] or [0]
        self._reference = self._references[0]

    def clocks(self) -> Clocks:
        """Return how they differ."""
        count = len(self._order.clocks)
        for reference in self._references:
            self._reference = reference
            pairs = self._pairs()
            if count < 3 or not all(pair.jumps for pair in pairs.values()):
                break
        lines = {self._reference: Line()}
        for other, pair in pairs.items():
            if pair.state != "not calibrated":
                lines[other] = pair.line
        if len(lines) < count:
            self._by_others(pairs, lines)
        circles = self._circles(pairs, lines)
        hosts = tuple(
            self._host(at, pairs.get(at))._replace(circle_ns=circles.get(at, 0))
            for at in range(count)
        )
        all_lines = tuple(lines.get(at, Line()) for at in range(count))
        return Clocks(hosts, all_lines, self._order.clock, self._order.shift_ns)

    def _pairs(self) -> dict[int, PairOfClocks]:
        """Return how each clock differs from the reference."""
        others = (at for at in range(len(self._order.clocks)) if at != self._reference)
        return {other: self._pair(self._reference, other) for other in others}

    def _by_others(self, pairs: dict[int, PairOfClocks], lines: dict[int, Line]) -> None:
        """Join clocks that have nothing in common with the reference by those that have."""
        count = len(self._order.clocks)
        ways = [(pairs[at].typical or 0, at) for at in lines if at != self._reference]
        heap = [(far, int(self._lowest[at]), at, at) for far, at in ways]
        heap.sort()
        done: set[int] = {self._reference}
        found: dict[tuple[int, int], PairOfClocks] = {}
        while heap:
            far, _, at, by = heappop(heap)
            if at in done:
                continue
            done.add(at)
            if at not in lines:
                lines[at], pairs[at] = lines[by].after(found[by, at].line), found[by, at]
                # What is certain adds up over the way, as what is usual does.
                before = pairs[by].certain if by in pairs else 0
                both = None not in (before, pairs[at].certain)
                certain = (before or 0) + (pairs[at].certain or 0) if both else None
                pairs[at] = pairs[at]._replace(
                    typical=far, certain=certain, offset=lines[at].offset
                )
            for other in range(count):
                if other not in lines and other not in done:
                    pair = self._pair(at, other)
                    if pair.state != "not calibrated":
                        found[at, other] = pair
                        more = far + (pair.typical or pair.certain or 0)
                        heappush(heap, (more, int(self._lowest[other]), other, at))
                    elif pair.shared > pairs[other].shared:
                        pairs[other] = pair

    def _circles(self, pairs: dict[int, PairOfClocks], lines: dict[int, Line]) -> dict[int, int]:
        """Return of clocks by how much two ways to them differ, beyond what is usual on these.

        A second way is known where a clock was with another, and the reference was not there.
        """
        found: dict[int, int] = {}
        known = [at for at in lines if pairs.get(at) and pairs[at].state == "calibrated"]
        known.sort(key=lambda at: int(self._lowest[at]))
        reference = self._of[self._reference].sample
        own = {at: np.isin(self._of[at].sample, reference, invert=True).any() for at in known}
        for one, other in pairwise(at for at in known if own[at]):
            pair = self._pair(one, other)
            if pair.state != "calibrated":
                continue
            shown = np.array(pair.line.at)
            apart = int(lines[other].of(shown)) - int(lines[one].of(pair.line.of(shown)))
            usual = sum(part.typical or 0 for part in (pair, pairs[one], pairs[other]))
            if abs(apart) > usual:
                for at in (one, other):
                    found[at] = max(found.get(at, 0), abs(apart) - usual)
                    # Which of the ways is wrong is not known.
                    typical = max(pairs[at].typical or 0, abs(apart))
                    pairs[at] = pairs[at]._replace(typical=typical)
        return found

    def _host(self, at: int, pair: PairOfClocks | None) -> ClockOfHost:
        name, rank = self._order.clocks[at], self._rank_of(at)
        host = self._ranks[int(self._lowest[at])].place.host or name
        if rank is not None:
            host = f"{host}, rank {rank}"
        if pair is None:
            return ClockOfHost(name, host, "reference", 0, 0.0, 0, 0, rank=rank)
        reason = pair.reason
        if reason and not pair.shared and at in self._enqueued:
            reason = "enqueued"
        return ClockOfHost(
            name,
            host,
            pair.state,
            pair.offset,
            None if pair.drift is None else pair.drift * 1e6,
            pair.typical,
            pair.certain,
            pair.shared,
            reason,
            pair.contradiction,
            pair.jumps,
            rank=rank,
        )

    def _rank_of(self, at: int) -> int | None:
        """Return the rank that has a clock by itself, on a host of several."""
        place = self._ranks[int(self._lowest[at])].place
        return None if self._order.clocks[at] == place.clock else place.rank

    def _pair(self, one: int, other: int) -> PairOfClocks:
        """Return how a clock differs from another."""
        first, second = self._of[one], self._of[other]
        _, at, there = np.intersect1d(
            first.sample, second.sample, assume_unique=True, return_indices=True
        )
        if len(at) < FEWEST_IN_COMMON:
            reason: Reason = "few in common" if len(at) else "none in common"
            return self._by_messages(one, other) or PairOfClocks(
                Line(), "not calibrated", reason, len(at)
            )
        return fitted(
            first.left_ns[at],
            second.left_ns[there],
            second.came_ns[there] - first.left_ns[at],
            second.left_ns[there] - first.came_ns[at],
        )

    def _by_messages(self, one: int, other: int) -> PairOfClocks | None:
        """Return between what a clock is ahead: messages are there after they were sent."""
        told = self._messages
        out = (told.sender == one) & (told.receiver == other)
        back = (told.sender == other) & (told.receiver == one)
        _, at, there = np.intersect1d(
            told.part[out], told.part[back], assume_unique=True, return_indices=True
        )
        if not len(at):
            return None
        took = told.there_ns - told.sent_ns
        time = told.sent_ns[out][at]
        high, low = took[out][at], -took[back][there]
        middle, base = int(time[len(time) // 2]), int(low[0])
        since = (time - middle).astype(float)
        above, below = (high - base).astype(float), (low - base).astype(float)

        def apart(drift: float) -> float:
            turn = drift * since
            return float((below - turn).max() - (above - turn).min())

        drift = 0.0 if apart(0.0) <= 0 else least(apart)
        if (far := apart(drift)) > 0:
            return PairOfClocks(
                Line(), "not calibrated", "contradiction", 0, contradiction=round(far)
            )
        lowest, highest = (below - drift * since).max(), (above - drift * since).min()
        offset = base + round((lowest + highest) / 2)
        line = Line(offset, drift / (1 + drift), middle + offset)
        certain = int(np.ceil((highest - lowest) / 2)) + 1
        return PairOfClocks(line, "bounded", "", 0, offset, drift or None, certain=certain)
