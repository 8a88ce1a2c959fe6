"""When the thread that trains stood still for others: what collectives and messages took of it.

They lie on tracks of their own and last while the thread computes, so that their time is not what
they cost. The thread shows signs of life, which are the ends of its spans and its calls of
collectives. A silence between two of these that a collective's end breaks was spent on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.steps.spans import common, union

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.spans import Spans

__all__ = ["FIRST_TRACK", "Standstill", "standstill"]

FIRST_TRACK: Final = 1 << 30
"""From here on numbers are of tracks, and of no thread."""

# So soon behind the end of what it has waited for a thread shows that it goes on.
SOON_NS: Final = 2_000_000
# Where nothing says how late an end was seen: after a pause of 5 ms at most, or an eighth of the
# length, and not before the interpreter was free.
LATE_NS: Final = 6_000_000
LATE_SHARE: Final = 8

# Ends that say nothing of a wait: the call's, and that of what nobody waited for.
NO_WAIT: Final = frozenset({"enqueued", "dropped", "removed"})

# Who waits so soon behind a call has called for it to wait.
CALL_NS: Final = 500_000

UNKNOWN: Final = -1
MOST_US: Final = 2.0**50
AT_ONCE: Final = 100_000


class _Calls(NamedTuple):
    """Collectives and messages that somebody may have waited for, by their start.

    Attributes:
        start_ns: when each was called.
        end_ns: when its end was seen.
        late_ns: how much earlier it may have been.
        waited_ns: how long its wait had lasted then; `UNKNOWN` where torch waits by itself.
        within: torch may have waited for it by itself, which it does not do for another call.
        row: its number.
    """

    start_ns: Integers
    end_ns: Integers
    late_ns: Integers
    waited_ns: Integers
    within: Integers
    row: Integers

    def only(self, which: Integers | slice) -> _Calls:
        """Return some of them, by a mask or in a row."""
        return _Calls(*(column[which] for column in self))


class Standstill(NamedTuple):
    """When a thread stood still for collectives and messages, in order and without overlaps.

    Attributes:
        start_ns: when each stretch began.
        end_ns: when it ended.
        span: index of what it was that ended it, among the spans of the process.
    """

    start_ns: Integers
    end_ns: Integers
    span: Integers

    def within(self, start_ns: Integers, end_ns: Integers) -> Standstill:
        """Return what of it lies in stretches that are in order and do not overlap."""
        start, end = common(self.start_ns, self.end_ns, start_ns, end_ns)
        return Standstill(
            start, end, self.span[np.searchsorted(self.start_ns, start, side="right") - 1]
        )


def standstill(spans: Spans, thread: Spans, tid: int, main: int) -> Standstill:
    """Return when a thread stood still for collectives and messages.

    Args:
        spans: of the process.
        thread: those of the thread.
        tid: its number.
        main: number of the process' main thread.
    """
    rows = np.flatnonzero(spans.has("comm") & (spans.tid >= FIRST_TRACK) & (spans.tid != tid))
    beside = spans.at(rows)
    if not len(beside):
        return Standstill(beside.start_ns, beside.end_ns, rows)
    calls, launches = _calls(beside, tid, main)
    told = calls.waited_ns != UNKNOWN
    waits = calls.only(told & (calls.waited_ns > 0))
    begins, ends, which = [_waits_from(waits, thread, launches)], [waits.end_ns], [waits.row]
    untold = calls.only(~told)
    for first in range(0, len(untold.start_ns), AT_ONCE):
        some = untold.only(slice(first, first + AT_ONCE))
        begin, end, row = _silences(some, thread, launches)
        begins.append(begin)
        ends.append(end)
        which.append(row)
    start, end, row = (np.concatenate(columns) for columns in (begins, ends, which))
    by_end = np.argsort(end, kind="stable")
    low, high = union(start, end)
    return Standstill(low, high, rows[row[by_end[np.searchsorted(end[by_end], high)]]])


def _calls(beside: Spans, tid: int, main: int) -> tuple[_Calls, Integers]:
    """Return the calls that may have been waited for, and when the thread made any."""
    count = len(beside)
    length = beside.end_ns - beside.start_ns
    late, waited = np.zeros(count, np.int64), np.full(count, UNKNOWN, np.int64)
    within, kept, own = np.zeros(count, bool), np.ones(count, bool), np.ones(count, bool)
    for place in np.unique(beside.place).tolist():
        here = np.flatnonzero(beside.place == place)
        here = here[np.argsort(beside.row[here], kind="stable")]
        all_args = beside.columns[place].all_args(beside.row[here])
        for at, args in zip(here.tolist(), all_args, strict=True):
            if args.get("until") in NO_WAIT:
                kept[at] = False
            elif (stood := _ns(args.get("waited_us"))) is not None:
                own[at] = args.get("waited_by", main) == tid
                waited[at] = stood if own[at] else 0
            elif (seen := _ns(args.get("late_us"))) is not None:
                late[at], within[at] = seen, True
            elif "group" in args and "until" not in args:
                late[at] = LATE_NS + int(length[at]) // LATE_SHARE
    calls = _Calls(beside.start_ns, beside.end_ns, late, waited, within, np.arange(count))
    return calls.only(kept), beside.start_ns[own]


def _waits_from(waits: _Calls, thread: Spans, launches: Integers) -> Integers:
    """Return when waits that are told began: with their calls, where nothing came between."""
    begin = np.maximum(waits.end_ns - waits.waited_ns, waits.start_ns)
    behind = waits.start_ns + 1
    alone = begin - waits.start_ns <= CALL_NS
    for signs in (thread.start_ns, np.sort(thread.end_ns), launches):
        alone &= np.searchsorted(signs, behind) == np.searchsorted(signs, begin)
    return np.where(alone, waits.start_ns, begin)


def _ns(us: object) -> int | None:
    return round(us * 1000) if isinstance(us, (int, float)) and 0 <= us < MOST_US else None


def _silences(calls: _Calls, thread: Spans, launches: Integers) -> tuple[Integers, ...]:
    """Return the longest silence of a thread that the end of each call broke, up to that end.

    Returns:
        Starts, ends and numbers of the calls.
    """
    low, high = int(calls.start_ns.min()), int(calls.end_ns.max()) + SOON_NS
    of_spans, of_calls = (
        np.concatenate([times[(times >= low) & (times <= high)] for times in columns])
        for columns in ((thread.start_ns, thread.end_ns), (launches,))
    )
    signs = np.unique(np.concatenate([of_spans, of_calls]))
    by_length = np.argsort(np.append(np.diff(signs), 0), kind="stable")
    rank = np.empty(len(signs), np.int64)
    rank[by_length] = np.arange(len(signs))
    found = []
    for within in (False, True):
        some = calls.only(calls.within == within)
        if within:
            # Who calls another one has not waited for this one.
            rank[:-1][~np.isin(signs[1:], of_spans)] = UNKNOWN
        least = np.searchsorted(signs, some.end_ns - some.late_ns) - 1
        least = np.maximum(least, np.searchsorted(signs, some.start_ns))
        behind = np.searchsorted(signs, some.end_ns + SOON_NS, side="right") - 1
        behind = np.minimum(behind, np.searchsorted(signs, some.end_ns))
        there = least < behind
        pairs = np.stack([least[there], behind[there]], 1).ravel()
        if not len(pairs):
            continue
        best = np.maximum.reduceat(rank, pairs)[::2]
        ended = some.only(there).only(best >= 0)
        silence = by_length[best[best >= 0]]
        found.append((signs[silence], np.minimum(signs[silence + 1], ended.end_ns), ended.row))
    if not found:
        return signs[:0], signs[:0], calls.row[:0]
    return tuple(map(np.concatenate, zip(*found, strict=True)))
