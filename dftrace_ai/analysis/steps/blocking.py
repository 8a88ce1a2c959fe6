"""When the thread that trains waited for others: for collectives, messages, and a loader's thread.

Collectives and messages lie on tracks of their own and last while the thread computes, so that
their time is not what they cost. The thread shows signs of life, which are the ends of its spans
and its calls of collectives. A silence between two of these that a collective's end
breaks was spent on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai._reader import broken_silences
from dftrace_ai.analysis.reading.argument_members import NO_NUMBER
from dftrace_ai.analysis.reading.clock_faults import LATEST_NS
from dftrace_ai.analysis.steps.calls import LATE_NS
from dftrace_ai.analysis.steps.profiled import begin_with, profiled_calls
from dftrace_ai.analysis.steps.spans import common, places, rising, union
from dftrace_ai.analysis.steps.timeline import covered_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.calls import CallSpans
    from dftrace_ai.analysis.steps.detection import FoundSteps
    from dftrace_ai.analysis.steps.spans import Spans

FIRST_TRACK: Final = 1 << 30
"""From here on numbers are of tracks, and of no thread."""

# So soon behind the end of what it has waited for a thread shows that it goes on.
SOON_NS: Final = 2_000_000
# Ends that say nothing of a wait: the call's, and that of what nobody waited for.
NO_WAIT: Final = ("enqueued", "dropped", "removed")

# Who waits so soon behind a call has called for it to wait.
CALL_NS: Final = 500_000

# One that has less to do waits for room in its queue, and the training not for it.
LEAST_BUSY: Final = 0.85
# So long may it take until a batch is handed over: the interpreter's turns are 5 ms.
HAND_OVER_NS: Final = 10_000_000

UNKNOWN: Final = -1
AT_ONCE: Final = 100_000


class _Calls(NamedTuple):
    """Collectives and messages by their start."""

    start_ns: Integers  # when each was called
    end_ns: Integers  # when its end was seen
    late_ns: Integers  # how much earlier it may have been
    # How long its wait had lasted then, 0 where nobody waited for it; `UNKNOWN` where torch waits
    # by itself.
    waited_ns: Integers
    within: Integers  # torch may have waited for it by itself, in the call that it was made in
    until_ns: Integers  # when the span ended in which it was made, where torch waits by itself
    row: Integers  # its number

    def only(self, which: Integers | slice) -> _Calls:
        """Return some of them, by a mask or in a row."""
        return _Calls(*(column[which] for column in self))


class Standstill(NamedTuple):
    """When a thread stood still for collectives and messages, in order and without overlaps."""

    start_ns: Integers  # when each stretch began
    end_ns: Integers  # when it ended
    span: Integers  # index of what it was that ended it, among the spans of the process

    def only(self, which: Integers | slice) -> Standstill:
        """Return some of the stretches, by a mask or in a row."""
        return Standstill(*(column[which] for column in self))

    def within(self, start_ns: Integers, end_ns: Integers) -> Standstill:
        """Return what of it lies in stretches that are in order and do not overlap."""
        start, end = common(self.start_ns, self.end_ns, start_ns, end_ns)
        return Standstill(
            start, end, self.span[np.searchsorted(self.start_ns, start, side="right") - 1]
        )


def standstill(calls: CallSpans, thread: Spans, tid: int, main: int) -> Standstill:
    """Return when a thread stood still for collectives; `main` is the process' main thread."""
    spans = calls.spans
    calls = calls.only(spans.has("comm") & (spans.tid >= FIRST_TRACK) & (spans.tid != tid))
    if not len(calls.rows):
        return Standstill(spans.start_ns[:0], spans.end_ns[:0], calls.rows)
    ends = np.sort(thread.end_ns, kind="stable")
    beside, launches = _calls(calls, thread, tid, main)
    return _stood(beside, calls.rows, (thread.start_ns, ends, launches))


def profiled_standstill(spans: Spans, thread: Spans, tid: int) -> Standstill:
    """Return the same of a profile: it stood still for what threads of gloo do.

    What a GPU does is on its tracks.
    """
    rows, calls = _of_threads(spans, tid)
    # An operation of torch ends because it has computed. How late anybody goes on behind a
    # call, and how late its end is seen, is the machine's to say.
    computes = begin_with(thread, "aten::") if len(rows) else np.zeros(len(thread), bool)
    ends = np.sort(thread.end_ns[~computes]), np.sort(thread.end_ns[computes])
    return _stood(calls, rows, (thread.start_ns, *ends), LATE_NS)


def _of_threads(spans: Spans, tid: int) -> tuple[Integers, _Calls]:
    """Return the calls that threads other than that which trains do in a profile."""
    told = profiled_calls(spans)
    chosen = ~told.on_gpu & ~told.enqueued
    chosen &= spans.tid[told.row] != tid
    rows = told.row[chosen]
    none = np.zeros(len(rows), np.int64)
    return rows, _Calls(
        *(told.start_ns[chosen], spans.end_ns[rows], told.late_ns[chosen], none + UNKNOWN),
        *(none == 0, none + LATEST_NS, np.arange(len(rows), dtype=np.int32)),
    )


def _stood(
    calls: _Calls, rows: Integers, signs: Sequence[Integers], soon_ns: int = SOON_NS
) -> Standstill:
    """Return when a thread stood still that showed signs of life; with the last no wait ends."""
    found: list[tuple[Integers, ...]] = []
    for first in range(0, len(rows), AT_ONCE):
        some = calls.only(slice(first, first + AT_ONCE))
        waits = some.only(some.waited_ns > 0)
        found.append((_waits_from(waits, signs), waits.end_ns, waits.row))
        found.append(_silences(some.only(some.waited_ns == UNKNOWN), signs, soon_ns))
    if not found:
        return Standstill(calls.start_ns, calls.end_ns, rows)
    start, end, row = map(np.concatenate, zip(*found, strict=True))
    del calls, found
    low, high = union(start, end)
    by_end = np.argsort(end, kind="stable")
    which = by_end[np.searchsorted(end, high, sorter=by_end)]
    return Standstill(low, high, rows[row[which]])


def _calls(calls: CallSpans, thread: Spans, tid: int, main: int) -> tuple[_Calls, Integers]:
    """Return the calls, and when the thread made any."""
    _, beside, told = calls
    untold = told.waited_ns == NO_NUMBER
    by = told.numbers["waited_by"]
    own = (np.where(by == NO_NUMBER, main, by) == tid) | untold
    waits = np.where(own & ~told.ends(*NO_WAIT), told.waited_ns, 0)
    until = np.full(len(beside), LATEST_NS)
    if told.looked.any():
        by_id = np.argsort(thread.id, kind="stable")
        around = told.numbers["p_idx"][told.looked]
        until[told.looked] = _ends_of(thread, by_id, around)
    found = _Calls(
        *(beside.start_ns, beside.end_ns, told.late_ns),
        *(np.where(waits == NO_NUMBER, UNKNOWN, waits), told.looked, until),
        np.arange(len(beside), dtype=np.int32),
    )
    return found, beside.start_ns if own.all() else beside.start_ns[own]


def _ends_of(thread: Spans, by_id: Integers, ids: Integers) -> Integers:
    """Return when spans of a thread ended, by their numbers; `LATEST_NS` for those of others."""
    if not len(by_id):
        return np.full(len(ids), LATEST_NS)
    ordered = thread.id[by_id]
    # Of what is greater than numbers of 64 bits with a sign there are few.
    brief = ordered.dtype != np.uint64
    at = places(ordered, ids) if brief else np.searchsorted(ordered, ids)
    at = by_id[np.minimum(at, len(by_id) - 1)]
    return np.where((thread.id[at] == ids) & (ids > 0), thread.end_ns[at], LATEST_NS)


def _waits_from(waits: _Calls, signs: Sequence[Integers]) -> Integers:
    """Return when waits that are told began: with their calls, where nothing came between."""
    begin = np.maximum(waits.end_ns - waits.waited_ns, waits.start_ns)
    behind = waits.start_ns + 1
    alone = begin - waits.start_ns <= CALL_NS
    for moments in signs:
        alone &= places(moments, behind) == places(moments, begin)
    return np.where(alone, waits.start_ns, begin)


def _silences(calls: _Calls, of_thread: Sequence[Integers], soon_ns: int) -> tuple[Integers, ...]:
    """Return the longest silence of a thread that the end of each call broke, up to that end."""
    if not len(calls.row):
        return calls.start_ns[:0], calls.end_ns[:0], calls.row[:0]
    window = int(calls.start_ns.min()), int(calls.end_ns.max()) + soon_ns + 1
    starts, ends, others = (
        np.ascontiguousarray(moments[slice(*np.searchsorted(moments, window))], np.int64)
        for moments in of_thread
    )
    start, end, late, until = (
        np.ascontiguousarray(column, np.int64)
        for column in (calls.start_ns, calls.end_ns, calls.late_ns, calls.until_ns)
    )
    # Who calls another one, or computes, has not waited for a call that is within.
    within = np.ascontiguousarray(calls.within, np.uint8)
    found = broken_silences((starts, ends, others), (start, end, late, until, within), soon_ns)
    begins, ended, row = np.frombuffer(found, np.int64).reshape(-1, 3).T
    return begins, ended, calls.row[row]


class Feeders(NamedTuple):
    """Threads that iterate a loader for the thread that trains, and hardly ever rest."""

    tids: tuple[int, ...]  # their numbers
    busy: float  # which share of its time the busiest of them fetches
    start_ns: Integers  # when the thread that trains was in silence until they had fetched a batch
    end_ns: Integers  # when each of these silences ended


def feeders_of(spans: Spans, thread: Spans, tid: int, found: FoundSteps) -> Feeders | None:
    """Return the threads for whose batches a rank waits; None where there are none."""
    fetches = spans.at(spans.has("wait") & (spans.tid != tid) & (spans.tid < FIRST_TRACK))
    tids, busy = [], []
    for other in np.unique(fetches.tid).tolist():
        own = fetches.at(fetches.tid == other)
        share = _share(own, found)
        if share >= LEAST_BUSY:
            tids.append(other)
            busy.append(share)
    if not tids:
        return None
    own = fetches.at(np.isin(fetches.tid, tids))
    signs = rising(thread.start_ns, thread.end_ns)
    # Where the silence begins in which a batch came, and where it ends.
    behind = np.searchsorted(signs, own.end_ns)
    inside = (behind > 0) & (behind < len(signs))
    own, behind = own.at(inside), behind[inside]
    soon = signs[behind] <= own.end_ns + HAND_OVER_NS
    start = np.maximum(signs[behind - 1], own.start_ns)
    return Feeders(tuple(tids), max(busy), *union(start[soon], own.end_ns[soon]))


def _share(fetches: Spans, found: FoundSteps) -> float:
    """Return which share of steps a thread fetches, from its first batch to its last."""
    begins = np.maximum(found.start_ns, fetches.start_ns[0])
    ends = np.maximum(np.minimum(found.end_ns, fetches.end_ns.max()), begins)
    inside = covered_within(*union(fetches.start_ns, fetches.end_ns), begins, ends).sum()
    return float(inside / max(1, (ends - begins).sum()))
