"""When the thread that trains waited for a loader that another thread of its process iterates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.steps.blocking import FIRST_TRACK
from dftrace_ai.analysis.steps.spans import rising, union
from dftrace_ai.analysis.steps.timeline import covered_within

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.finding import FoundSteps
    from dftrace_ai.analysis.steps.spans import Spans

__all__ = ["Feeders", "feeders_of"]

# One that has less to do waits for room in its queue, and the training not for it.
LEAST_BUSY: Final = 0.85
# So long may it take until a batch is handed over: the interpreter's turns are 5 ms.
HAND_OVER_NS: Final = 10_000_000


class Feeders(NamedTuple):
    """Threads that iterate a loader for the thread that trains, and hardly ever rest.

    Attributes:
        tids: their numbers.
        busy: which share of its time the busiest of them fetches.
        start_ns: when the thread that trains was in silence until they had fetched a batch.
        end_ns: when each of these silences ended.
    """

    tids: tuple[int, ...]
    busy: float
    start_ns: Integers
    end_ns: Integers


def feeders_of(spans: Spans, thread: Spans, tid: int, found: FoundSteps) -> Feeders | None:
    """Return the threads for whose batches a rank waits; None where there are none.

    Args:
        spans: of the process.
        thread: those of the thread that trains.
        tid: its number.
        found: the steps.
    """
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
