"""How the clocks of hosts differ, by collectives that all leave together.

Nobody leaves such a collective before the last has come. So in true time an end on any host is not
before a start on another, which bounds how far two clocks can be apart, and ends lie close
together, which says how far they usually are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.groups import MESSAGE, ROOTED_FROM, SEND
from dftrace_ai.analysis.ranks.matching import in_order, matched
from dftrace_ai.analysis.ranks.ordering import any_in, begins
from dftrace_ai.analysis.ranks.partials import UNTIL, UNTOLD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dftrace_ai.analysis.ranks.calls import RanksInOrder
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.matching import Matches
    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

FEWEST_IN_COMMON: Final = 8
MOST_DRIFT: Final = 200e-6
"""Clocks do not differ by more: what looks like it is something else."""

_CELLS: Final = 60
_FEWEST_CELLS: Final = 6
_A_CELL: Final = 8

# Of a clock that is set: where what it shows is further from a line than so many times what it is
# from one collective to the next, two levels are tried.
_OFF_A_LINE: Final = 8
_LEAST_JUMP_NS: Final = 20_000
_A_CELL_OF_JUMP: Final = 24
_CELLS_OF_JUMP: Final = 8

_STRETCHES: Final = 8
_CALLS: Final = 1 << 20
_PARTS: Final = 8
_SPARED: Final = 100

# Of a group so many collectives of each block are kept, and so many rows in all.
_A_BLOCK: Final = 1024
_MOST_ROWS: Final = 400_000

ClockState = Literal["reference", "calibrated", "bounded", "not calibrated"]
Reason = Literal["", "none in common", "few in common", "enqueued", "contradiction"]
"""Why a clock is not calibrated: no collective in common with another host, too few, only such as
were seen to be enqueued, or bounds that contradict each other, as after a jump."""


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


class _Line(NamedTuple):
    """Time of the reference: t - offset - rate * (t - at)."""

    offset: int = 0
    rate: float = 0.0
    at: int = 0
    later: tuple[tuple[int, _Line], ...] = ()  # from a time of its own on it is another

    def after(self, first: _Line) -> _Line:
        """Return what does the same as another, and then this."""
        moved = self.rate * (first.at - first.offset - self.at)
        rate = first.rate + self.rate - first.rate * self.rate
        one = _Line(first.offset + self.offset + round(moved), rate, first.at)
        if not first.later and not self.later:
            return one
        begins = {begin for begin, _ in first.later}
        begins |= {first.shown(begin) for begin, _ in self.later}
        return one._replace(
            later=tuple(
                (begin, self.part(int(first.of(np.array(begin)))).after(first.part(begin)))
                for begin in sorted(begins)
            )
        )

    def part(self, time: int) -> _Line:
        """Return the line at a time, alone."""
        lines = [self, *(line for begin, line in self.later if begin <= time)]
        return lines[-1]._replace(later=())

    def shown(self, time: int) -> int:
        """Return what the clock shows at a time of the reference, before it is another line."""
        return time + self.offset + round(self.rate * (time + self.offset - self.at))

    def of(self, times: Integers) -> Integers:
        """Return times of the reference."""
        moved: Integers = times - self.offset
        if self.rate:
            moved -= np.rint(self.rate * (times - self.at)).astype(np.int64)
        for begin, line in self.later:
            moved = np.where(times >= begin, line.of(times), moved)
        return moved


@dataclass(frozen=True, repr=False)
class Clocks:
    """The clocks of a job's hosts, brought to one."""

    hosts: tuple[ClockOfHost, ...]  # those of `RanksInOrder.clocks`
    lines: tuple[_Line, ...]  # of each
    clock: Integers  # of each rank, its index in these
    shift_ns: Integers  # of each rank: what is added to its times to have those of its clock

    @property
    def uncertainty_ns(self) -> int | None:
        """So far clocks that are calibrated agree; None where none is, of several."""
        if len(self.hosts) == 1:
            return 0
        far = [_far(one) for one in self.hosts if one.state in {"calibrated", "bounded"}]
        return max(far, default=None)

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
        if (block := job.block(numbers[at], "steps", "calls")) is not None:
            calls = len(block.tables.calls.rows.name)
            steps = _CALLS * len(block.numbers) // (len(chosen) * max(calls, 1))
            samples.add(matched(block, order, max(steps, 1)))
    return samples.clocks()


class ClockSamples:
    """Of collectives that several clocks were in: who came last on each, and who left first."""

    def __init__(self, ranks: Sequence[RankPartial], order: RanksInOrder) -> None:
        self._ranks = ranks
        self._order = order
        self._next = 0
        self._every = 1
        none = np.zeros(0, np.int64)
        self._rows = _Rows(none, none, none, none)
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
        return _Rows(sample[first], clock[at][first], came, left)

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
        return _Calibration(
            self._rows, self._messages, self._ranks, self._order, self._enqueued
        ).clocks()


class _Rows(NamedTuple):
    """What samples say of each clock in them."""

    sample: Integers
    clock: Integers
    came_ns: Integers  # the latest start
    left_ns: Integers  # the first end

    def taken(self, some: Integers) -> _Rows:
        """Return some of them."""
        return _Rows(*(column[some] for column in self))

    def and_then(self, other: _Rows) -> _Rows:
        """Return these and others."""
        return _Rows(*(np.concatenate(both) for both in zip(self, other, strict=True)))


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


class _Pair(NamedTuple):
    """How one clock differs from another."""

    line: _Line  # from the second to the first
    state: ClockState
    reason: Reason
    shared: int
    offset: int = 0
    drift: float | None = None
    typical: int | None = None
    certain: int | None = None
    contradiction: int = 0
    jumps: tuple[int, ...] = ()


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
        self._reference = int(np.lexsort((lowest, -sizes))[0]) if count else 0

    def clocks(self) -> Clocks:
        """Return how they differ."""
        count = len(self._order.clocks)
        pairs: dict[int, _Pair] = {}
        lines = {self._reference: _Line()}
        for other in range(count):
            if other != self._reference:
                pairs[other] = self._pair(self._reference, other)
                if pairs[other].state != "not calibrated":
                    lines[other] = pairs[other].line
        if len(lines) < count:
            self._by_others(pairs, lines)
        hosts = tuple(self._host(at, pairs.get(at)) for at in range(count))
        all_lines = tuple(lines.get(at, _Line()) for at in range(count))
        return Clocks(hosts, all_lines, self._order.clock, self._order.shift_ns)

    def _by_others(self, pairs: dict[int, _Pair], lines: dict[int, _Line]) -> None:
        """Join clocks that have nothing in common with the reference by those that have."""
        count = len(self._order.clocks)
        ways = [(pairs[at].typical or 0, at) for at in lines if at != self._reference]
        heap = [(far, int(self._lowest[at]), at, at) for far, at in ways]
        heap.sort()
        done: set[int] = {self._reference}
        found: dict[tuple[int, int], _Pair] = {}
        while heap:
            far, _, at, by = heappop(heap)
            if at in done:
                continue
            done.add(at)
            if at not in lines:
                lines[at], pairs[at] = lines[by].after(found[by, at].line), found[by, at]
                pairs[at] = pairs[at]._replace(typical=far, offset=lines[at].offset)
            for other in range(count):
                if other not in lines and other not in done:
                    pair = self._pair(at, other)
                    if pair.state != "not calibrated":
                        found[at, other] = pair
                        more = far + (pair.typical or pair.certain or 0)
                        heappush(heap, (more, int(self._lowest[other]), other, at))
                    elif pair.shared > pairs[other].shared:
                        pairs[other] = pair

    def _host(self, at: int, pair: _Pair | None) -> ClockOfHost:
        name = self._order.clocks[at]
        host = self._ranks[int(self._lowest[at])].place.host or name
        if pair is None:
            return ClockOfHost(name, host, "reference", typical_ns=0, certain_ns=0, ppm=0.0)
        ppm = None if pair.drift is None else pair.drift * 1e6
        reason = pair.reason
        if reason and not pair.shared and at in self._enqueued:
            reason = "enqueued"
        return ClockOfHost(
            name,
            host,
            pair.state,
            pair.offset,
            ppm,
            pair.typical,
            pair.certain,
            pair.shared,
            reason,
            pair.contradiction,
            pair.jumps,
        )

    def _pair(self, one: int, other: int) -> _Pair:
        """Return how a clock differs from another."""
        first, second = self._of[one], self._of[other]
        _, at, there = np.intersect1d(
            first.sample, second.sample, assume_unique=True, return_indices=True
        )
        if len(at) < FEWEST_IN_COMMON:
            reason: Reason = "few in common" if len(at) else "none in common"
            return self._by_messages(one, other) or _Pair(
                _Line(), "not calibrated", reason, len(at)
            )
        return _fitted(
            first.left_ns[at],
            second.left_ns[there],
            second.came_ns[there] - first.left_ns[at],
            second.left_ns[there] - first.came_ns[at],
        )

    def _by_messages(self, one: int, other: int) -> _Pair | None:
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

        drift = 0.0 if apart(0.0) <= 0 else _least(apart)
        if (far := apart(drift)) > 0:
            return _Pair(_Line(), "not calibrated", "contradiction", 0, contradiction=round(far))
        lowest, highest = (below - drift * since).max(), (above - drift * since).min()
        offset = base + round((lowest + highest) / 2)
        line = _Line(offset, drift / (1 + drift), middle + offset)
        certain = int(np.ceil((highest - lowest) / 2)) + 1
        return _Pair(line, "bounded", "", 0, offset, drift or None, certain=certain)


def _least(apart: Callable[[float], float]) -> float:
    """Return the drift of clocks at which a convex function is least."""
    low, high = -MOST_DRIFT, MOST_DRIFT
    for _ in range(60):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        if apart(one) < apart(other):
            high = other
        else:
            low = one
    return (low + high) / 2


def _fitted(time: Integers, shown: Integers, low: Integers, high: Integers) -> _Pair:
    """Fit a line to what a clock shows more along its time, or one to each part between jumps."""
    order = np.argsort(time, kind="stable")
    time, shown, low, high = (column[order] for column in (time, shown, low, high))
    whole = _on_a_line(time, shown, low, high)
    off = np.abs(whole.line.of(shown) - time)
    # A few at either end, as those before a clock is set, are none of the usual ones.
    at_ends = (off[:FEWEST_IN_COMMON], off[-FEWEST_IN_COMMON:])
    far = max(whole.typical or 0, *map(np.median, at_ends))
    if whole.state == "calibrated" and far <= _OFF_A_LINE * _noise(shown - time):
        return whole
    at = _jump(time, shown - time)
    if at is None:
        return whole
    one, other = (
        _fitted(*(column[some] for column in (time, shown, low, high)))
        for some in (slice(at), slice(at, None))
    )
    if "not calibrated" in {one.state, other.state}:
        return whole
    begin = int(shown[at - 1] + shown[at]) // 2
    later = (*one.line.later, (begin, other.line._replace(later=())), *other.line.later)
    longer = max(one, other, key=lambda pair: pair.shared)
    ends = [int(pair.line.part(begin).of(np.array(begin))) for pair in (one, other)]
    return longer._replace(
        line=one.line._replace(later=later),
        shared=len(time),
        typical=max(one.typical or 0, other.typical or 0),
        certain=max(one.certain or 0, other.certain or 0),
        jumps=(*one.jumps, ends[0] - ends[1], *other.jumps),
    )


def _noise(more: Integers) -> float:
    """Return how far what a clock shows more usually is from one time to the next."""
    return float(np.median(np.abs(np.diff(more)))) if len(more) > 1 else 0.0


def _jump(time: Integers, more: Integers) -> int | None:
    """Return from where on a clock shows another time as if it had been set; None for nowhere."""
    cell = max(min(len(time) // _CELLS_OF_JUMP, _A_CELL_OF_JUMP), 1)
    cells = len(time) // cell
    at, level = (
        np.median((column[: cells * cell] - column[0]).reshape(cells, cell), axis=1)
        for column in (time, more)
    )
    if cells < 4:
        return None
    slope = float(np.median(np.diff(level) / np.maximum(np.diff(at), 1)))
    slope = slope if abs(slope) <= MOST_DRIFT else 0.0
    straight = (more - more[0]) - slope * (time - time[0])
    # Squares of what is left by two means, by the first of the second.
    level = level - slope * at
    level -= level.mean()
    first = np.arange(1, cells)
    total = np.cumsum(level)[:-1]
    gained = total**2 * cells / (first * (cells - first))
    near = (int(gained.argmax()) + 1) * cell
    # What is set within the first cell or the last shows in no mean.
    found = (_jump_near(straight, at, cell) for at in (near, cell, len(time) - cell))
    return next((at for at in found if at is not None), None)


def _jump_near(straight: Integers, near: int, cell: int) -> int | None:
    """Return from where on what a clock shows has another level, about some place."""
    low, high = max(near - 2 * cell, 0), min(near + 2 * cell, len(straight))
    at_end = min(cell, FEWEST_IN_COMMON)
    before = np.median(straight[low : low + (cell if low else at_end)])
    behind = np.median(straight[high - (cell if high < len(straight) else at_end) : high])
    left = np.abs(straight[low:high] - before) - np.abs(straight[low:high] - behind)
    split = low + int(np.append(0.0, np.cumsum(left)).argmin())
    if min(split, len(straight) - split) < FEWEST_IN_COMMON:
        return None
    jump = abs(float(behind - before))
    # A few at either end have to be of one level.
    few = straight[:split] - before if split < cell else straight[split:] - behind
    if len(few) < cell and np.abs(few).max() > jump / 2:
        return None
    return split if jump > max(_OFF_A_LINE * _noise(straight), _LEAST_JUMP_NS) else None


def _on_a_line(time: Integers, shown: Integers, low: Integers, high: Integers) -> _Pair:
    """Fit a line to what a clock shows more, within bounds; all by its time."""
    start, base = int(time[0]), int(shown[0] - time[0])
    at, more = (time - start).astype(float), (shown - time - base).astype(float)
    middle = round(float(at.mean()))
    drift = _drift(at, more)
    straight = more - (drift or 0.0) * (at - middle)
    offset = round(float(np.median(straight)))
    typical = round(float(np.quantile(np.abs(straight - offset), 0.95)))
    turn = (drift or 0.0) * (at - middle)
    below, above = np.sort((low - base) - turn), np.sort((high - base) - turn)
    # Of very many a few may be wrong, as one that was not matched rightly. Rounded outwards.
    few = len(at) // _SPARED if below[-1] > above[0] else 0
    lowest, highest = int(np.floor(below[-1 - few])), int(np.ceil(above[few]))
    if lowest > highest:
        apart = lowest - highest
        return _Pair(_Line(), "not calibrated", "contradiction", len(at), contradiction=apart)
    offset = min(max(offset, lowest), highest)
    slope = drift or 0.0
    line = _Line(base + offset, slope / (1 + slope), start + middle + base + offset)
    certain = max(highest - offset, offset - lowest)
    return _Pair(line, "calibrated", "", len(at), base + offset, drift, typical, certain)


def _drift(at: Integers, more: Integers) -> float | None:
    """Return the median slope of medians; None for too few of them, or more than clocks have."""
    cells = min(_CELLS, len(at) // _A_CELL)
    if cells < _FEWEST_CELLS:
        return None
    long = len(at) // cells
    times, shown = (column[: cells * long].reshape(cells, long) for column in (at, more))
    time, level = times.mean(1), np.median(shown, axis=1)
    one, other = _pairs_of(cells)
    apart = time[other] - time[one]
    slopes = (level[other] - level[one])[apart > 0] / apart[apart > 0]
    drift = float(np.median(slopes)) if len(slopes) else 0.0
    return drift if abs(drift) <= MOST_DRIFT else None


@lru_cache
def _pairs_of(count: int) -> tuple[Integers, Integers]:
    return np.triu_indices(count, 1)
