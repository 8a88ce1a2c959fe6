"""Traces of hosts as operations: collectives are launched within spans and waited for somewhere.

The thread that trains is cut into pieces: where spans begin and end, at each launch, and at both
ends of each silence in which others blocked it. A silence is no work; what follows it begins when
the collective that ended it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.partials import MESSAGES, NO_WAIT_NS, ROOTED, UNTOLD
from dftrace_ai.analysis.whatif.graph import ALONE
from dftrace_ai.analysis.whatif.operations import Operations, first_ends
from dftrace_ai.trace_format.names_and_phases import JOINT

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.whatif.gathering import Columns, Gathered

FROM_ROOT: Final = frozenset({"bcast", "scatter"})
TO_ROOT: Final = ROOTED - FROM_ROOT


def host_operations(all_ranks: Gathered) -> Operations:
    """Cut the threads of all ranks into pieces, and tell what each waits for."""
    one = all_ranks
    launched = np.flatnonzero(one.call_meeting != UNTOLD)
    launches = np.sort(one.calls.at[launched])
    ends = believed_ends(one)
    cuts = np.unique(
        np.concatenate(
            (one.began, one.ended, one.steps.at, *(
                np.clip(times, one.began[rows.chain], one.ended[rows.chain])
                for rows in (one.spans, one.silences)
                for times in (rows.at, rows.end)
            ), launches)
        )
    )  # fmt: skip
    chain = cuts // one.axis_ns
    within = np.flatnonzero((chain[1:] == chain[:-1]) & (cuts[:-1] < one.ended[chain[:-1]]))
    start, end, chain = cuts[within], cuts[within + 1], chain[within]
    # The piece before each cut.
    piece_before = np.full(len(cuts), UNTOLD)
    piece_before[within + 1] = np.arange(len(within))

    span = _inside(one.spans, start)
    row = np.searchsorted(one.steps.at, start, side="right") - 1
    number = np.searchsorted(launches, start, side="right") - np.searchsorted(
        launches, one.steps.at[row]
    )
    begin, waits_call, waits_piece = _silent(one, start, end, ends)
    call_end = np.maximum(ends[launched], one.calls.at[launched])

    names = len(one.names)
    count = len(start)
    call_row = np.full(len(one.calls.at), UNTOLD)
    call_row[launched] = count + np.arange(len(launched))
    launch_cut = np.searchsorted(cuts, one.calls.at[launched])
    launcher = piece_before[launch_cut]
    has_launcher = launcher != UNTOLD
    following = np.flatnonzero(chain[1:] == chain[:-1])
    queue = _in_queues(one, launched)
    before = (following, launcher[has_launcher], count + queue[0], call_row[waits_call])
    after = (following + 1, count + np.flatnonzero(has_launcher), count + queue[1], waits_piece)
    call_step = np.searchsorted(one.steps.at, one.calls.at[launched], side="right") - 1
    offset = np.concatenate((chain, one.calls.chain[launched])) * one.axis_ns
    rank = one.chain_rank[np.concatenate((chain, one.calls.chain[launched]))]
    step = one.step[np.concatenate((row, call_step))]
    kind = np.concatenate(
        (np.where(span == UNTOLD, 0, one.span_name[span]), names + one.call_label[launched])
    )
    none = np.zeros(count, bool)
    if is_message(one)[launched].any():
        number = _in_turn(number, kind[:count], row)
    return Operations(
        form="host",
        rank=rank,
        step=step,
        start_ns=np.concatenate((begin, one.calls.at[launched])) - offset,
        end_ns=np.concatenate((end, call_end)) - offset,
        late_ns=np.concatenate((np.zeros(count, np.int64), one.call_late_ns[launched])),
        kind=kind,
        piece=np.concatenate((number, nth_of(kind[count:], rank[count:], step[count:]))),
        nth=np.zeros(len(rank), np.int64),
        span=np.concatenate((span, np.full(len(launched), ALONE))),
        is_comm=np.concatenate((none, np.ones(len(launched), bool))),
        meeting=np.concatenate((np.full(count, ALONE), one.call_meeting[launched])),
        gives=np.concatenate((none, gives(one)[launched])),
        must_wait=np.concatenate((none, must_wait(one)[launched])),
        before=np.concatenate(before),
        after=np.concatenate(after),
        kinds=(*one.names, *one.labels),
        stretch_of=one.stretch_of,
        numbers=one.numbers,
        ranks=tuple(place.rank for place in one.places),
    )


def believed_ends(one: Gathered) -> Integers:
    """Return when each call ended, on the axis of its chain."""
    offset = one.calls.chain * one.axis_ns
    ends: Integers = offset + first_ends(
        one.calls.at - offset,
        one.calls.end - offset,
        one.call_late_ns,
        one.call_meeting,
        _of_names(one, JOINT),
    )
    # Who sends may wait long after the message is there.
    received = np.flatnonzero(_of_names(one, frozenset({"receive"})) & (one.call_meeting != UNTOLD))
    _end_before_waits(one, received, ends, offset)
    sent = one.call_waited & (one.call_meeting != UNTOLD) & _of_names(one, frozenset({"send"}))
    there = np.full(int(one.call_meeting.max(initial=0)) + 1, np.iinfo(np.int64).max)
    there[one.call_meeting[received]] = (ends - offset)[received]
    sends = np.flatnonzero(sent)
    last = np.maximum(there[one.call_meeting[sends]], (one.calls.at - offset)[sends])
    ends[sends] = np.minimum(ends[sends], np.minimum(last, one.axis_ns) + offset[sends])
    return ends


def _end_before_waits(one: Gathered, received: Integers, ends: Integers, offset: Integers) -> None:
    """Let messages that were there before somebody waited for them take what others do."""
    waited = np.zeros(len(ends), np.int64)
    known = one.silence_call != UNTOLD
    length = one.silences.end - one.silences.at
    np.add.at(waited, one.silence_call[known], length[known])
    met = one.call_meeting != UNTOLD
    latest = np.zeros(int(one.call_meeting.max(initial=0)) + 1, np.int64)
    np.maximum.at(latest, one.call_meeting[met], (one.calls.at - offset)[met])
    begun = latest[one.call_meeting[received]] + offset[received]
    was_there = one.call_waited[received] & (waited[received] < NO_WAIT_NS)
    others = (ends[received] - begun)[~was_there]
    usual = int(np.median(others)) if len(others) else 0
    there = received[was_there]
    ends[there] = np.minimum(ends[there], begun[was_there] + max(usual, 0))


def gives(one: Gathered) -> Integers:
    """Return whether others wait for each call: of what comes from a root, for that alone."""
    own_rank = np.array([place.rank for place in one.places])[one.chain_rank[one.calls.chain]]
    leaf = _of_names(one, FROM_ROOT) & (one.call_peer != UNTOLD) & (one.call_peer != own_rank)
    found: Integers = ~leaf
    return found


def must_wait(one: Gathered) -> Integers:
    """Return whether each call waits for others whatever its times say."""
    own_rank = np.array([place.rank for place in one.places])[one.chain_rank[one.calls.chain]]
    is_root = one.call_peer == own_rank
    found: Integers = (
        _of_names(one, JOINT)
        | _of_names(one, frozenset({"receive"}))
        | (_of_names(one, FROM_ROOT) & (one.call_peer != UNTOLD) & ~is_root)
        | (_of_names(one, TO_ROOT) & is_root)
    )
    return found


def nth_of(*keys: Integers) -> Integers:
    """Return how many rows with the same keys come before each row."""
    count = len(keys[0])
    if not count:
        return np.zeros(0, np.int64)
    order = np.lexsort((np.arange(count), *keys))
    changes = np.zeros(count, bool)
    changes[0] = True
    for key in keys:
        changes[1:] |= np.diff(key[order]) != 0
    first = np.flatnonzero(changes)
    found = np.empty(count, np.int64)
    found[order] = np.arange(count) - np.repeat(first, np.diff(np.append(first, count)))
    return found


def _in_turn(number: Integers, *keys: Integers) -> Integers:
    """Return the how manieth number each is of those with the same keys, from 0 on.

    Ranks of a pipeline launch and wait in other orders, and the k-th forward of each is alike.
    """
    order = np.lexsort((number, *keys))
    rises = np.diff(number[order], prepend=-1) != 0
    begins = np.zeros(len(order), bool)
    begins[:1] = True
    for key in keys:
        begins[1:] |= np.diff(key[order]) != 0
    count = np.cumsum(rises | begins)
    found = np.empty(len(order), np.int64)
    found[order] = count - np.maximum.accumulate(np.where(begins, count, 0))
    return found


def is_message(one: Gathered) -> Integers:
    """Return whether each call is a message."""
    return _of_names(one, MESSAGES)


def _of_names(one: Gathered, names: frozenset[str]) -> Integers:
    found: Integers = np.array([name in names for name in one.call_names] or [False])[one.call_name]
    return found


def _inside(rows: Columns, times: Integers) -> Integers:
    """Return which of rows without overlaps each time lies in; `UNTOLD` for none."""
    at = np.searchsorted(rows.at, times, side="right") - 1
    if not len(rows.at):
        return np.full(len(times), UNTOLD)
    found: Integers = np.where((at >= 0) & (rows.end[at] > times), at, UNTOLD)
    return found


def _silent(
    one: Gathered, start: Integers, end: Integers, ends: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return when the work of each piece begins, and which calls end before which pieces."""
    begin = start.copy()
    call = one.silence_call.copy()
    unknown = np.flatnonzero(call == UNTOLD)
    if len(one.calls.at) and len(unknown):
        # A blocking call is all of its silence; one that is shorter has launched it.
        at = np.searchsorted(one.calls.at, one.silences.at[unknown])
        at = np.minimum(at, len(one.calls.at) - 1)
        whole = one.calls.at[at] == one.silences.at[unknown]
        whole &= one.silences.end[unknown] >= one.calls.end[at] - one.call_late_ns[at]
        call[unknown] = np.where(whole, at, UNTOLD)
    met = np.flatnonzero((call != UNTOLD) & (one.call_meeting[call] != UNTOLD))
    call, silent_at, silent_end = call[met], one.silences.at[met], one.silences.end[met]
    # A call was over when the silence was that it ended.
    ends[call] = np.minimum(ends[call], np.maximum(silent_end, one.calls.at[call]))
    done = np.clip(ends[call], silent_at, silent_end)
    # Pieces of each silence: those before its call ended are no work.
    first = np.searchsorted(start, silent_at, side="left")
    last = np.searchsorted(start, silent_end, side="left") - 1
    whole = (first <= last) & (first < len(start))
    call, done, first, last = call[whole], done[whole], first[whole], last[whole]
    target = np.clip(np.searchsorted(end, done, side="left"), first, last)
    lengths = target - first + 1
    pieces = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    begin[pieces] = np.minimum(np.repeat(done, lengths), end[pieces])
    begin[pieces] = np.maximum(begin[pieces], start[pieces])
    return begin, call, target


def _in_queues(one: Gathered, launched: Integers) -> tuple[Integers, Integers]:
    """Return pairs of calls that are done one after the other, as rows of those launched."""
    chain, queue = one.calls.chain[launched], one.call_queue[launched]
    # Those launched at one time end in the order of their queue.
    order = np.lexsort((one.calls.end[launched], one.calls.at[launched], queue, chain))
    same = (np.diff(chain[order]) == 0) & (np.diff(queue[order]) == 0)
    return order[:-1][same], order[1:][same]
