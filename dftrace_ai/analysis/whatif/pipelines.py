"""Traces of operations: computes in their order, communication on tracks of its own beside them.

Apart from `host`, the other way: `runs` chooses one of them by the traces.

Each operation begins when what it needs is there, so that time between two says nothing. What is
needed is known from the schedule of a pipeline, whose k-th message of a direction belongs to the
k-th compute of it; for collectives from what went before and came after in every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.partials import UNTOLD
from dftrace_ai.analysis.whatif.graph import ALONE
from dftrace_ai.analysis.whatif.host import believed_ends, gives, is_message, must_wait, nth_of
from dftrace_ai.analysis.whatif.operations import Operations

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.whatif.gathering import Gathered

# Times of one rank that are so near are in the order that makes sense.
TOLERANCE_NS: Final = 50_000
# A rank-step in twenty may have other messages than computes.
MOST_ODD: Final = 0.05
# Traces of operations do not wait within them.
MOST_BLOCKED: Final = 0.01


def are_of_operations(one: Gathered) -> bool:
    """Tell whether traces are of operations: a pipeline whose messages go with its computes."""
    directions = _directions_of_spans(one)
    messages = is_message(one) & (one.call_direction != 0)
    if not messages.any() or not directions.any():
        return False
    steps = _rows_of_steps(one, one.spans.at), _rows_of_steps(one, one.calls.at)
    odd = np.zeros(len(one.steps.at), bool)
    has_messages = np.zeros(len(one.steps.at), bool)
    for direction in (1, -1):
        computes = np.bincount(steps[0][directions == direction], minlength=len(odd))
        for name in ("send", "receive"):
            chosen = messages & (one.call_direction == direction) & _named(one, name)
            count = np.bincount(steps[1][chosen], minlength=len(odd))
            odd |= (count > 0) & (count != computes)
            has_messages |= count > 0
    if odd[has_messages].mean() > MOST_ODD:
        return False
    inside = _blocked_inside(one)
    return inside <= MOST_BLOCKED * int((one.spans.end - one.spans.at).sum())


def pipeline_operations(all_ranks: Gathered) -> Operations:
    """Take spans and communication as operations, and tell what each waits for."""
    one = all_ranks
    spans, calls = len(one.spans.at), len(one.calls.at)
    starts = np.concatenate((one.spans.at, one.calls.at))
    ends = np.concatenate((one.spans.end, np.maximum(believed_ends(one), one.calls.at)))
    chain = np.concatenate((one.spans.chain, one.calls.chain))
    row = _rows_of_steps(one, starts)
    is_comm = np.arange(spans + calls) >= spans
    names = len(one.names)
    kind = np.concatenate((one.span_name, names + one.call_label))
    rank, step = one.chain_rank[chain], one.step[row]
    directed = np.concatenate((_directions_of_spans(one), one.call_direction))
    # Collectives of a kind need not be of one size: those at one place in the step are.
    collective = is_comm & (directed == 0)
    order = np.argsort(starts, kind="stable")
    nth = np.empty(len(starts), np.int64)
    nth[order] = nth_of(kind[order], row[order])
    tracks = np.concatenate((np.full(spans, UNTOLD), one.call_track))
    pairs = [
        _one_after_the_other(starts, chain, tracks, is_comm),
        *_messages(one, starts, chain, row, directed, spans),
        *_collectives(
            starts, ends, chain, row, kind, nth, is_comm, collective, np.bincount(one.steps.chain)
        ),
    ]
    before = np.concatenate([pair[0] for pair in pairs])
    after = np.concatenate([pair[1] for pair in pairs])
    offset = chain * one.axis_ns
    none = np.zeros(spans, bool)
    return Operations(
        form="operations",
        rank=rank,
        step=step,
        start_ns=starts - offset,
        end_ns=ends - offset,
        late_ns=np.concatenate((np.zeros(spans, np.int64), one.call_late_ns)),
        kind=kind,
        piece=np.where(collective, nth, 0),
        nth=np.where(collective, 0, nth),
        span=np.where(is_comm, ALONE, np.arange(len(starts))),
        is_comm=is_comm,
        meeting=np.concatenate((np.full(spans, ALONE), one.call_meeting)),
        gives=np.concatenate((none, gives(one))),
        must_wait=np.concatenate((none, must_wait(one))),
        before=before,
        after=after,
        kinds=(*one.names, *one.labels),
        stretch_of=one.stretch_of,
        numbers=one.numbers,
        ranks=tuple(place.rank for place in one.places),
    )


def _rows_of_steps(one: Gathered, times: Integers) -> Integers:
    return np.searchsorted(one.steps.at, times, side="right") - 1


def _named(one: Gathered, name: str) -> Integers:
    found: Integers = np.array([known == name for known in one.call_names] or [False])[
        one.call_name
    ]
    return found


def _directions_of_spans(one: Gathered) -> Integers:
    """Return 1 for forward, -1 for backward, else 0."""
    of_name = [
        1 if "forward" in name.rpartition("/")[2] else -1 if "backward" in name else 0
        for name in one.names
    ]
    found: Integers = np.array(of_name)[one.span_name]
    return found


def _blocked_inside(one: Gathered) -> int:
    """Return how long spans were blocked, of all ranks."""
    if not len(one.silences.at):
        return 0
    length = one.silences.end - one.silences.at
    total = np.concatenate(([0], np.cumsum(length)))

    def until(times: Integers) -> Integers:
        at = np.searchsorted(one.silences.at, times, side="right")
        over = np.maximum(one.silences.end[at - 1] - times, 0) * (at > 0)
        found: Integers = total[at] - over
        return found

    return int((until(one.spans.end) - until(one.spans.at)).sum())


def _one_after_the_other(
    starts: Integers, chain: Integers, tracks: Integers, is_comm: Integers
) -> tuple[Integers, Integers]:
    """Return pairs of neighbours on a track; all computes of a rank are on one."""
    order = np.lexsort((starts, tracks, is_comm, chain))
    same = np.ones(max(len(order) - 1, 0), bool)
    for key in (chain, is_comm, tracks):
        same &= np.diff(key[order].astype(np.int64)) == 0
    return order[:-1][same], order[1:][same]


def _messages(
    one: Gathered,
    starts: Integers,
    chain: Integers,
    row: Integers,
    directed: Integers,
    spans: int,
) -> list[tuple[Integers, Integers]]:
    """Return pairs of computes and the messages that are sent of them or that they need."""
    found = []
    count = int(row.max(initial=0)) + 1
    sends, receives = _named(one, "send"), _named(one, "receive")
    for direction in (1, -1):
        computes = np.flatnonzero(directed[:spans] == direction)
        computes = computes[np.argsort(starts[computes], kind="stable")]
        first = np.searchsorted(row[computes], np.arange(count + 1))
        for chosen, sent in ((sends, True), (receives, False)):
            calls = spans + np.flatnonzero(chosen & (directed[spans:] == direction))
            calls = calls[np.argsort(starts[calls], kind="stable")]
            nth = nth_of(row[calls])
            there = nth < first[row[calls] + 1] - first[row[calls]]
            call, compute = calls[there], computes[(first[row[calls]] + nth)[there]]
            if sent:
                found.append((compute, call))
            else:
                found.append((call, compute))
                # It is posted when the compute before is through, the first of a step after all
                # of the one before.
                later = nth[there] > 0
                at = (first[row[calls]] + nth)[there][later] - 1
                found.append((computes[at], call[later]))
                earliest = call[~later]
                before = np.searchsorted(row[:spans], row[earliest]) - 1
                known = before >= 0
                known &= chain[before] == chain[earliest]
                found.append((before[known], earliest[known]))
    return found


def _collectives(
    starts: Integers,
    ends: Integers,
    chain: Integers,
    row: Integers,
    kind: Integers,
    nth: Integers,
    is_comm: Integers,
    collective: Integers,
    rows_of_chain: Integers,
) -> list[tuple[Integers, Integers]]:
    """Return pairs of collectives, and what ended before and began after them in every step."""
    found: list[tuple[Integers, Integers]] = []
    if not collective.any():
        return found
    several = kind * (int(nth.max()) + 1) + nth
    chosen = np.flatnonzero(~is_comm | collective)
    chosen = chosen[np.lexsort((row[chosen], several[chosen], chain[chosen]))]
    edges = np.flatnonzero(np.diff(chain[chosen])) + 1
    for some in np.split(chosen, edges):
        steps = int(rows_of_chain[chain[some[0]]])
        # What is there in every step.
        _, first, counts = np.unique(several[some], return_index=True, return_counts=True)
        full = first[counts == steps]
        table = some[full[:, None] + np.arange(steps)]
        comm = is_comm[table[:, 0]]
        for at in np.flatnonzero(comm).tolist():
            found += _around(table, at, comm, starts, ends)
    return found


def _around(
    table: Integers, at: int, comm: Integers, starts: Integers, ends: Integers
) -> list[tuple[Integers, Integers]]:
    """Return pairs of one collective of a rank, by step, with what is next to it."""
    mine = table[at]
    gap_before = starts[mine] - ends[table]
    gap_after = starts[table] - ends[mine]
    others = np.arange(len(table)) != at
    before = others & (gap_before >= -TOLERANCE_NS).all(axis=1)
    after = others & (gap_after >= -TOLERANCE_NS).all(axis=1)
    found = []
    for chosen, gaps, first in (
        (before & ~comm, gap_before, True),
        (before & comm, gap_before, True),
        (after & ~comm, gap_after, False),
    ):
        if chosen.any():
            rows = np.flatnonzero(chosen)
            near = table[rows[np.argmin(np.median(gaps[rows], axis=1))]]
            found.append((near, mine) if first else (mine, near))
    last = table[~comm][np.argmax(np.median(ends[table[~comm]], axis=1))] if (~comm).any() else None
    if last is None or table.shape[1] < 2:
        return found
    # What stands at an edge of its step goes with the step beside it.
    begin = table[~comm][np.argmin(np.median(starts[table[~comm]], axis=1))]
    if not (before & ~comm).any():
        found.append((last[:-1], mine[1:]))
    if not (after & ~comm).any():
        found.append((mine[:-1], begin[1:]))
    return found
