"""Why a rank waits for its data: slow items, too few workers, collating, reading, handing over."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.steps.spans import union
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.analysis.why.figures import Input, SlowItem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.processes import Process
    from dftrace_ai.analysis.steps.roles import Role
    from dftrace_ai.analysis.steps.spans import Spans
    from dftrace_ai.analysis.why.evidence import Evidence

__all__ = ["Cause", "cause_of_input", "union_ns"]

WORK: Final[tuple[Role, ...]] = ("item", "collate", "io", "data")

# A few waits have most of the waiting, and a few items are as long as that.
FEW_WAITS, MOST_OF_WAITING = 0.1, 0.6
FEW_ITEMS, LONG_ITEM, LONG_OF_WAIT = 0.05, 10, 0.2
FEWEST_ITEMS: Final = 20

BUSY, IDLE = 0.85, 0.5
NAMED_ITEMS: Final = 3
OWN_ARGS: Final = frozenset({"hhash", "p_idx", "level", "count", "epoch", "step"})


@dataclass(frozen=True)
class Cause:
    """Why, and the figures that show it.

    Attributes:
        name: such as ``workers``; empty where nothing tells.
        figures: times in nanoseconds.
    """

    name: str
    figures: Input


class _Worker(NamedTuple):
    """A process that loads, and when it is at work."""

    process: Process
    work: Spans
    start_ns: Integers
    end_ns: Integers


def union_ns(spans: Iterable[Spans]) -> int:
    """Return how long processes were in any of their spans, added up over the processes."""
    total = 0
    for one in spans:
        start, end = union(one.start_ns, one.end_ns)
        total += int((end - start).sum())
    return total


def cause_of_input(evidence: Evidence) -> Cause:
    """Tell why the steps of a rank wait for data.

    Args:
        evidence: of a rank whose steps do.
    """
    staff = [worker for one in evidence.rank.workers if (worker := _worker(one))]
    own = _own_work(evidence)
    cause = _slow_items(evidence, [worker.work for worker in staff] or [own])
    if cause is None:
        cause = _by_workers(evidence, staff) if staff else _by_own_work(evidence, own)
    figures = Input(**cause.figures, items_told=_items_are_told(evidence))
    if feeders := evidence.steps.feeders:
        figures["thread_busy"] = round(feeders.busy, 4)
    return Cause(cause.name, figures)


def _items_are_told(evidence: Evidence) -> bool:
    """Return whether any process says what it does for an item; it may not be known for whom."""
    rank, others = evidence.rank, evidence.job.others
    processes = (rank.process, *rank.workers, *others)
    return any(bool(process.spans.has("item").any()) for process in processes)


def _worker(process: Process) -> _Worker | None:
    work = process.spans.of(*WORK)
    start, end = union(work.start_ns, work.end_ns)
    return _Worker(process, work, start, end) if len(start) else None


def _waiting(evidence: Evidence) -> Integers:
    return evidence.steps.time_of("wait", "data")[evidence.used]


def _own_work(evidence: Evidence) -> Spans:
    """Return the data work of the rank itself in its used steps, and of threads that feed it."""
    steps = evidence.steps
    spans = evidence.rank.process.spans
    tids = (steps.tid, *(steps.feeders.tids if steps.feeders else ()))
    work = spans.at(spans.has(*WORK) & np.isin(spans.tid, tids))
    index = np.searchsorted(steps.start_ns, work.start_ns, side="right") - 1
    at = np.maximum(index, 0)
    return work.at((index >= 0) & evidence.used[at] & (work.start_ns < steps.end_ns[at]))


def _slow_items(evidence: Evidence, works: Sequence[Spans]) -> Cause | None:
    waits = np.sort(_waiting(evidence))[::-1]
    longest = waits[: max(1, int(len(waits) * FEW_WAITS))]
    items = [(work.of("item")) for work in works]
    lengths = np.concatenate([one.end_ns - one.start_ns for one in items])
    if len(lengths) < FEWEST_ITEMS or longest.sum() < MOST_OF_WAITING * waits.sum():
        return None
    usual = float(np.median(lengths))
    of_waits = float(np.median(waits[: max(1, len(waits) // 20)]))
    bound = max(LONG_ITEM * usual, LONG_OF_WAIT * of_waits)
    long = lengths > bound
    if not 0 < long.mean() <= FEW_ITEMS or lengths[long].sum() < 0.5 * waits.sum():
        return None
    named = [
        SlowItem(
            at_us=evidence.rank.process.ts_us(int(one.start_ns[at])),
            ns=int(one.end_ns[at] - one.start_ns[at]),
            args={key: v for key, v in one.args(at).items() if key not in OWN_ARGS},
        )
        for one in items
        for at in np.flatnonzero(one.end_ns - one.start_ns > bound).tolist()
    ]
    named.sort(key=lambda item: -item["ns"])
    return Cause(
        "slow-item",
        Input(
            items=int(long.sum()),
            workers=len(evidence.rank.workers),
            median_ns=int(usual),
            longest_ns=int(lengths.max()),
            longest=named[:NAMED_ITEMS],
        ),
    )


def _by_own_work(evidence: Evidence, own: Spans) -> Cause:
    work = union_ns([own])
    if work < 0.5 * int(_waiting(evidence).sum()):
        return Cause("", Input())
    return Cause(_kind_of_work([own], "inline"), Input(workers=0))


def _kind_of_work(works: Sequence[Spans], otherwise: str) -> str:
    """Return which kind of work has at least half of the workers' time."""
    half = 0.5 * union_ns(works)
    if union_ns(work.of("collate") for work in works) >= half:
        return "collate"
    return "disk" if union_ns(work.of("io") for work in works) >= half else otherwise


def _by_workers(evidence: Evidence, staff: Sequence[_Worker]) -> Cause:
    steps, used = evidence.steps, evidence.used
    low, high = int(steps.start_ns[used].min()), int(steps.end_ns[used].max())
    busy = life = 0
    for worker in staff:
        begin = max(low, int(worker.start_ns[0]))
        end = min(high, int(worker.end_ns[-1]))
        if end > begin:
            window = np.array([begin]), np.array([end])
            busy += int(covered_within(worker.start_ns, worker.end_ns, *window)[0])
            life += end - begin
    if not life:
        return Cause("", Input())  # by their clocks none was there meanwhile
    share = busy / life
    # The first steps of later loops are in the window, too, and their batches.
    batches = int(((steps.start_ns >= low) & (steps.end_ns <= high)).sum()) * steps.accumulation
    cost = busy / max(1, batches)
    rest = float(np.median((evidence.time - steps.time_of("wait", "data"))[used]))
    rest = max(1.0, rest / steps.accumulation)
    process = evidence.rank.process
    hosted = evidence.job.ranks_of_host.get(process.host, 1)
    figures = Input(
        workers=_at_once([(int(w.start_ns[0]), int(w.end_ns[-1])) for w in staff]),
        busy=round(share, 4),
        batches_a_step=steps.accumulation,
        batch_ns=int(cost),
        rest_ns=int(rest),
        needed=ceil(cost / rest),
        cores=process.cores,
        ranks_of_host=hosted,
        take_over_ns=int(np.median(_waiting(evidence))) // steps.accumulation,
    )
    inside = [
        worker.work.at((worker.work.start_ns >= low) & (worker.work.start_ns <= high))
        for worker in staff
    ]
    if share >= BUSY:
        return Cause(_kind_of_work(inside, "workers"), figures)
    if share < IDLE:
        return Cause("idle-workers", figures)
    return Cause(_kind_of_work(inside, ""), figures)


def _at_once(lives: Iterable[tuple[int, int]]) -> int:
    """Return how many lived at the same time at most."""
    moments = sorted(moment for a, b in lives for moment in ((a, 1), (b, -1)))
    now = most = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most
