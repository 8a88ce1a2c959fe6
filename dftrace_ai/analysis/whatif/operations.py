"""Operations of all ranks as columns, and how long each takes from when it may begin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.whatif.graph import ALONE, CircleError, Graph

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.whatif.model import Form

# Of a circle.
NAMED: Final = 4


@dataclass(frozen=True, repr=False)
class Operations:
    """What ranks did in some steps, and what had to end before; times on one clock."""

    form: Form  # what the traces are of
    rank: Integers  # index of its rank
    step: Integers  # index of its step among those judged
    start_ns: Integers  # when it began
    # When it ended; of what meets others as it is believed to have, see `first_ends`.
    end_ns: Integers
    late_ns: Integers  # so much earlier its end may have been
    kind: Integers  # index in `kinds`
    piece: Integers  # which of its kind it is in its step, where these are not alike
    nth: Integers  # which of its kind and piece it is in its step
    span: Integers  # which span of its rank it is a piece of, by a number; `ALONE` for none
    is_comm: Integers  # whether it is communication
    meeting: Integers  # the number of its meeting, or `ALONE`
    gives: Integers  # whether the meeting waits for it
    must_wait: Integers  # whether it waits for the meeting whatever its times say
    before: Integers  # operations that end
    after: Integers  # ... before these begin
    kinds: tuple[str, ...]  # category and name, with the direction or group of communication
    stretch_of: Integers  # of each step the stretch
    numbers: Integers  # what each step is called
    ranks: tuple[int, ...]  # the number of each rank

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rank)


class Weighed(NamedTuple):
    """Operations as a graph, and what each takes."""

    graph: Graph
    times: Integers  # nanoseconds from when it may begin; a transfer where it meets others
    negative: int  # communication that ended before it could have begun
    truly_negative: int  # by more than the error of its end and that of the clocks


def first_ends(
    start_ns: Integers,
    end_ns: Integers,
    late_ns: Integers,
    meeting: Integers,
    joint: Integers,
) -> Integers:
    """Return when communication ended, where its own end was seen late."""
    ends: Integers = end_ns.copy()
    members = np.flatnonzero(joint & (meeting != ALONE))
    if not len(members):
        return ends
    at = meeting[members]
    count = int(at.max()) + 1
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, at, end_ns[members])
    np.maximum.at(last, at, start_ns[members])
    # Where ends are seen late, the first that is seen to have left tells when all did, after the
    # last had come.
    seen_late = late_ns[members] > 0
    first_end = np.minimum(np.maximum(first[at], last[at]), end_ns[members])
    ends[members] = np.where(seen_late, first_end, end_ns[members])
    return ends


def weigh(operations: Operations, uncertainty_ns: int) -> Weighed:
    """Make the graph of operations, and what each takes."""
    one = _with_held_roots(operations, uncertainty_ns)
    member = one.meeting != ALONE
    begin, met = _begins(one, one.end_ns)
    # A member that left before the last came has not waited for it.
    waits = member & (one.must_wait | (one.end_ns >= met))
    times = one.end_ns - np.where(waits, met, np.where(one.is_comm, begin, one.start_ns))
    negative = one.is_comm & (times < 0)
    # What those it met were queued behind may have ended before that was seen.
    _, earliest = _begins(one, one.end_ns - one.late_ns)
    truly = negative & (one.end_ns - earliest < -(one.late_ns + uncertainty_ns))
    try:
        graph = Graph(one.before, one.after, one.meeting, one.gives, waits)
    except CircleError as circle:
        calls = circle.operations[one.is_comm[circle.operations]]
        names = _called(one, calls if len(calls) else circle.operations)
        raise CircleError(circle.operations, names) from None
    return Weighed(
        graph,
        np.maximum(times, 0),
        int(negative.sum()),
        int(truly.sum()),
    )


def _with_held_roots(one: Operations, uncertainty_ns: int) -> Operations:
    """Let meetings wait for those, too, that came after the root and before it had left.

    Who sends may be held until the other is there, as on gloo. Those of the same meeting that had
    left by then have waited for nobody.
    """
    taking = np.flatnonzero((one.meeting != ALONE) & ~one.gives)
    if not len(taking):
        return one
    begin, _ = _begins(one, one.end_ns)
    giving = np.flatnonzero((one.meeting != ALONE) & one.gives)
    begun, left = np.full((2, int(one.meeting.max()) + 1), np.iinfo(np.int64).max)
    begun[one.meeting[giving]], left[one.meeting[giving]] = begin[giving], one.end_ns[giving]
    of = one.meeting[taking]
    later = (begun[of] < begin[taking] - uncertainty_ns) & (begin[taking] <= left[of])
    gives = one.gives.copy()
    gives[taking[later]] = True
    held = replace(one, gives=gives)
    _, met = _begins(held, one.end_ns)
    is_held = np.zeros(len(begun), bool)
    is_held[of[later]] = True
    gone = is_held[of] & (one.end_ns[taking] < met[taking])
    must_wait = one.must_wait.copy()
    must_wait[taking[gone]] = False
    return replace(held, must_wait=must_wait)


def _begins(one: Operations, ends: Integers) -> tuple[Integers, Integers]:
    """Return when each could begin by itself, and when all it meets could, with these ends."""
    member = one.meeting != ALONE
    # Queued behind another it has not begun, however early it was launched.
    begin = one.start_ns.copy()
    np.maximum.at(begin, one.after, np.minimum(ends[one.before], one.end_ns[one.after]))
    latest = np.full(int(one.meeting.max(initial=ALONE)) + 1, np.iinfo(np.int64).min)
    giving = member & one.gives
    np.maximum.at(latest, one.meeting[giving], begin[giving])
    met = np.maximum(latest[one.meeting], begin) if len(latest) else begin
    return begin, np.where(member, met, begin)


def _called(one: Operations, some: Integers) -> tuple[str, ...]:
    return tuple(
        f"{one.kinds[one.kind[at]]} of rank {one.ranks[one.rank[at]]} "
        f"in step {one.numbers[one.step[at]]}"
        for at in some[:NAMED].tolist()
    )
