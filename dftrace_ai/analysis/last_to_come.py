"""Arrows from the rank that came last into a collective to those that waited, for a viewer.

Loaded late, for it needs NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.groups import MESSAGE, SEND
from dftrace_ai.analysis.ranks.matching import Matching
from dftrace_ai.analysis.ranks.meetings import Meetings
from dftrace_ai.analysis.ranks.ordering import any_in, begins
from dftrace_ai.analysis.ranks.partials import UNTIL, UNTOLD
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from dftrace_ai.analysis.merging.joined import Joined
    from dftrace_ai.analysis.merging.shown_times import ShownTimes
    from dftrace_ai.analysis.ranks.calls import RanksInOrder
    from dftrace_ai.analysis.ranks.matching import Matches
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace

LATE_NS: Final = 1_000_000
LATE_SHARE: Final = 0.1
"""Who came later than both, the second of it of the step, has others wait."""

MOST_ARROWS: Final = 100_000

# Of other arrows the numbers are far smaller.
FIRST_ID: Final = 1 << 40

LAST: Final = "last to come"
CATEGORY: Final = "collective"
SENT: Final = "message"

_AT_ONCE: Final = 4096


class Arrows(NamedTuple):
    """Lines of arrows, by the trace whose process and time they are of, and what is to be told."""

    lines: Mapping[Path, ArrowLines]
    notes: tuple[str, ...] = ()


class _Sides(NamedTuple):
    """Ends of arrows, those on the tracks of one process side by side."""

    head: Integers  # whether it is where one ends
    message: Integers
    meeting: Integers
    track: Integers
    ns: Integers  # by the rank's own clock, since the base of its file


class ArrowLines:
    """The lines of a process, which are made when they are asked for: as texts all are large."""

    def __init__(self, sides: _Sides, pid: int, before: Iterable[bytes] = ()) -> None:
        self._sides = sides
        self._pid = pid
        self._before = before

    def behind(self, lines: Iterable[bytes]) -> ArrowLines:
        """Return the same behind others."""
        return ArrowLines(self._sides, self._pid, lines)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._before
        for at in range(0, len(self._sides.ns), _AT_ONCE):
            some = (column[at : at + _AT_ONCE].tolist() for column in self._sides)
            for head, message, meeting, track, ns in zip(*some, strict=True):
                name = (SENT if message else LAST).encode()
                ph = b'"f","bp":"e"' if head else b'"s"'
                yield from _end(name, FIRST_ID + meeting, ph, self._pid, track, ns)


class _Ends(NamedTuple):
    """Both ends of arrows, each on the track of its call."""

    message: Integers  # whether it is one, of a send to its receive
    late_ns: Integers  # of a collective, how much later the last came than the first
    meeting: Integers  # those of one have one tail; unique in the job
    from_rank: Integers  # indices in the job
    from_track: Integers
    from_ns: Integers  # by the rank's own clock
    to_rank: Integers
    to_track: Integers
    to_ns: Integers

    def taken(self, rows: Integers) -> _Ends:
        return _Ends(*(column[rows] for column in self))


def arrows_of(
    joined: Joined, times: ShownTimes, window: TimeWindow | None = None, most: int = MOST_ARROWS
) -> Arrows:
    """Return arrows between ranks of a merged trace; those with both ends in a window alone.

    Collectives have some where the last rank came more than `LATE_NS` and `LATE_SHARE` of the step
    after the first and all members have a trace; messages from where they were sent to where they
    were received. Of more than `most` it is those of whoever came latest.
    """
    drawn = _Drawn(_Placed(joined, times), window, most)
    for ends in _ends_of(joined):
        drawn.add(ends)
    return drawn.arrows()


class _Placed:
    """In which files the lines of ranks are written, and how their times are told and shown."""

    def __init__(self, joined: Joined, times: ShownTimes) -> None:
        own = {
            (one.header.rank, one.start, one.header.pid, one.header.boot_id or one.host): one
            for one in joined.files.owners.all
            if one.is_last
        }
        places = [one.place for one in joined.job.ranks]
        owners = [own.get((one.rank, one.start, one.pid, one.clock)) for one in places]
        self.files = [None if owner is None else owner.files[0] for owner in owners]
        self.known = np.array([one is not None for one in self.files], bool)
        self.pids = [one.pid for one in places]
        self.base_ns = np.array([_base_ns(one) for one in self.files], np.int64)
        self._pieces = [times.pieces(one) if one else [] for one in self.files]

    def shown_ns(self, rank: Integers, ns: Integers) -> Integers:
        """Return when moments of ranks are shown, by the lines of their own files."""
        at = ns - self.base_ns[rank]
        shown: Integers = at.copy()
        for number in np.unique(rank).tolist():
            rows = np.flatnonzero(rank == number)
            own = at[rows]
            moved = own
            for place, (begin, shift, rate, still) in enumerate(self._pieces[number]):
                piece = own + shift - np.rint(rate * (own - still)).astype(np.int64)
                moved = np.where(own >= begin, piece, moved) if place else piece
            shown[rows] = moved
        return shown


def _base_ns(trace: Trace | None) -> int:
    header = trace.header if trace is not None else None
    return ((header and header.time_base_us) or 0) * 1000


def _ends_of(joined: Joined) -> Iterator[_Ends]:
    matching = Matching(joined.job.ranks)
    count = 0
    for block in joined.job.blocks("steps"):
        step_ns = block.time_ns.max(0)
        for matches in matching.take(block):
            if not len(matches.first):
                continue
            meetings = Meetings.of(matches, matching.ranks, joined.clocks)
            calls = _Calls.of(matches, matching.ranks)
            yield _joint(meetings, calls, step_ns, count)
            yield _sent(meetings, calls, count)
            count += len(matches.first)
            del matches, meetings, calls  # the next ones are made meanwhile


class _Calls(NamedTuple):
    """Of matched calls where they lie, by the ranks' own clocks."""

    here: Integers  # whether an arrow can begin and end in it
    track: Integers
    start_ns: Integers
    end_ns: Integers

    @classmethod
    def of(cls, matches: Matches, ranks: RanksInOrder) -> _Calls:
        met = matches.calls
        start_ns, end_ns = met.start_ns, met.end_ns
        if ranks.shift_ns.any():
            shift = ranks.shift_ns.take(met.rank)
            start_ns, end_ns = start_ns - shift, end_ns - shift
        # An end that lies a nanosecond within it needs three of them.
        return cls(end_ns - start_ns > 2, met.track, start_ns, end_ns)


def _joint(meetings: Meetings, calls: _Calls, step_ns: Integers, count: int) -> _Ends:
    matches = meetings.matches
    met, first, meeting = matches.calls, matches.first, matches.meeting
    tail = np.flatnonzero(met.rank == meetings.last[meeting])
    late = np.maximum.reduceat(meetings.wait_ns, first)
    late[meeting[tail]] -= meetings.wait_ns[tail]
    usual = int(np.median(step_ns))
    step = np.where(matches.step == UNTOLD, usual, step_ns[matches.step])
    chosen = (meetings.last != UNTOLD) & (matches.name < MESSAGE) & matches.whole
    chosen &= late > np.maximum(LATE_NS, LATE_SHARE * step)
    chosen &= ~any_in(~calls.here, first)
    tail_of = np.full(len(first), UNTOLD)
    tail_of[meeting[tail]] = tail
    to = np.flatnonzero(chosen[meeting] & (tail_of[meeting] != np.arange(len(meeting))))
    return _ends(met.rank, calls, tail_of[meeting[to]], to, late[meeting[to]], meeting[to] + count)


def _sent(meetings: Meetings, calls: _Calls, count: int) -> _Ends:
    matches = meetings.matches
    met = matches.calls
    one = matches.first[matches.name >= MESSAGE]
    sends = met.name[one] == SEND
    send, receive = np.where(sends, one, one + 1), np.where(sends, one + 1, one)
    # What was enqueued says nothing of when it was there.
    good = calls.here[send] & calls.here[receive] & (met.until[receive] <= UNTIL["waited"])
    send, receive = send[good], receive[good]
    none = np.full(len(send), UNTOLD)
    return _ends(met.rank, calls, send, receive, none, matches.meeting[send] + count)


def _ends(
    rank: Integers, calls: _Calls, tail: Integers, head: Integers, late: Integers, meeting: Integers
) -> _Ends:
    return _Ends(
        message=late == UNTOLD,
        late_ns=late,
        meeting=meeting,
        from_rank=rank[tail],
        from_track=calls.track[tail],
        from_ns=calls.start_ns[tail] + 1,
        to_rank=rank[head],
        to_track=calls.track[head],
        to_ns=calls.end_ns[head] - 1,
    )


class _Drawn:
    """The arrows that are shown, of those that come: no more than half as many more are held."""

    def __init__(self, place: _Placed, window: TimeWindow | None, most: int) -> None:
        self._place, self._window, self._most = place, window, most
        self._kept: list[_Ends] = []
        self._least_ns = UNTOLD  # whoever came less late is not among the latest
        self._count = 0  # of those that can be shown
        self._back = 0

    def add(self, ends: _Ends) -> None:
        """Take those that can be shown."""
        place = self._place
        ends = ends.taken(np.flatnonzero(place.known[ends.from_rank] & place.known[ends.to_rank]))
        begin_ns, end_ns = (
            place.shown_ns(rank, ns)
            for rank, ns in ((ends.from_rank, ends.from_ns), (ends.to_rank, ends.to_ns))
        )
        shown = (begin_ns >= 0) & (end_ns >= 0)
        if self._window:
            low, high = self._window.begin_us * 1000, self._window.end_us * 1000
            shown &= (np.minimum(begin_ns, end_ns) >= low) & (np.maximum(begin_ns, end_ns) <= high)
        back = shown & (begin_ns >= end_ns)
        self._back += int(back.sum())
        shown &= ~back
        self._count += int(shown.sum())
        self._kept.append(ends.taken(np.flatnonzero(shown & (ends.late_ns >= self._least_ns))))
        if sum(len(one.meeting) for one in self._kept) > self._most + self._most // 2:
            self._kept = [self._latest()]
            self._least_ns = int(self._kept[0].late_ns.min(initial=np.iinfo(np.int64).max))

    def _latest(self) -> _Ends:
        """Return those of whoever came latest, in their order."""
        if not self._kept:
            return _Ends(*[np.zeros(0, np.int64)] * len(_Ends._fields))
        meeting, late_ns, message = (
            np.concatenate([getattr(one, name) for one in self._kept])
            for name in ("meeting", "late_ns", "message")
        )
        order = np.sort(np.lexsort((meeting, -late_ns, message))[: self._most])
        columns = zip(*self._kept, strict=True)
        return _Ends(*(np.concatenate(column)[order] for column in columns))

    def arrows(self) -> Arrows:
        """Return their lines."""
        ends, notes = self._latest(), []
        self._kept = []
        if self._back:
            told = counted(self._back, "arrow")
            notes.append(f"{told} left out: the clocks of hosts differ by more")
        if len(ends.meeting) < self._count:
            notes.append(
                f"{len(ends.meeting):,} of {self._count:,} arrows are shown: from those who came "
                "latest"
            )
        return Arrows(_lines(ends, self._place), tuple(notes))


def _lines(ends: _Ends, place: _Placed) -> dict[Path, ArrowLines]:
    count = len(ends.meeting)
    if not count:
        return {}
    # Those of a meeting have one tail.
    tails = np.sort(np.unique(ends.meeting, return_index=True)[1])
    row = np.concatenate([tails, np.arange(count)])
    head = np.arange(len(row)) >= len(tails)
    rank = np.where(head, ends.to_rank[row], ends.from_rank[row])
    order = np.lexsort((head, row, rank))
    row, head, rank = row[order], head[order], rank[order]
    ns = np.where(head, ends.to_ns[row], ends.from_ns[row]) - place.base_ns[rank]
    track = np.where(head, ends.to_track[row], ends.from_track[row])
    sides = _Sides(head, ends.message[row], ends.meeting[row], track, ns)
    found: dict[Path, ArrowLines] = {}
    first = begins(rank)
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(rank)], strict=True):
        number = int(rank[begin])
        file = place.files[number]
        assert file is not None  # noqa: S101 - of those whose files are known
        its = _Sides(*(column[begin:end] for column in sides))
        found[file.path] = ArrowLines(its, place.pids[number])
    return found


def _end(name: bytes, number: int, ph: bytes, pid: int, track: int, ns: int) -> Iterator[bytes]:
    """Yield an instant, to which a viewer binds the end behind it, and that."""
    head = b'"name":"%s","cat":"collective","pid":%d,"tid":%d,"ts":%d.%03d,"ph":' % (
        (name, pid, track, *divmod(ns, 1000))
    )
    yield b'{%s"i","s":"t"}' % head
    yield b'{"id":%d,%s%s}' % (number, head, ph)
