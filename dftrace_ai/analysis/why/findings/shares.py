"""Findings that are a share of every step: input and why, communication, copies, idle time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.robust_statistics import BatchSums
from dftrace_ai.analysis.steps.spans import NO_INTEGER, union
from dftrace_ai.analysis.steps.timeline import PART_CODE, covered_within
from dftrace_ai.analysis.why.evidence import at_once
from dftrace_ai.analysis.why.model import (
    Figures,
    Input,
    NotAnnotated,
    Optimizer,
    Others,
    SlowItem,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part, Process
    from dftrace_ai.analysis.steps.roles import Role
    from dftrace_ai.analysis.steps.spans import Spans
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding

# Where the GPU is idle while the host is in one of these, the host is the reason.
HOST_PARTS: Final[tuple[Part, ...]] = (
    *("forward", "backward", "optimizer", "compute", "launch", "other", "none"),
)
# Of the limit: what at least the median step has in no span.
TYPICAL: Final = 0.75
# So much of what is in no span has to be in the steps that are told as having most of it.
MOST_OF_IT: Final = 0.9
# As much would be a finding, were it annotated.
MOST_NOT_ANNOTATED: Final = 0.10

WORK: Final[tuple[Role, ...]] = ("item", "collate", "io", "data")

# A few waits have most of the waiting, and a few items are as long as that.
FEW_WAITS, MOST_OF_WAITING = 0.1, 0.6
FEW_ITEMS, LONG_ITEM, LONG_OF_WAIT = 0.05, 10, 0.2
FEWEST_ITEMS: Final = 20

TIMES: Final = ("start_ns", "end_ns")

BUSY, IDLE = 0.85, 0.5
NAMED_ITEMS: Final = 3
OWN_ARGS: Final = frozenset({"hhash", "p_idx", "level", "count", "epoch", "step"})


def share_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield what costs every step too much.

    From few steps only what is critical, with low confidence.
    """
    for finding in _all(evidence):
        if not evidence.is_short:
            yield finding
        elif finding.severity == "critical":
            yield replace(finding, confidence="low")


def _all(evidence: Evidence) -> Iterator[Finding]:
    limits, sums, sure = evidence.limits, evidence.sums, evidence.confidence
    waiting = evidence.finding(
        "input-bound", limits["input"], sums.share("wait", "data"), Input(), confidence=sure
    )
    if waiting:
        cause = _cause_of_input(evidence)
        yield replace(
            waiting,
            cause=cause.name,
            confidence=sure if cause.name or sure == "low" else "medium",
            evidence=cause.figures,
        )
    # What the optimizer's share is, is known; waiting for other ranks inside of it would be another
    # cause.
    hidden = evidence.rank.process.world_size - 1 if evidence.hides_comm else 0
    others = (
        evidence.finding(
            *("communication-bound", limits["comm"], sums.share("comm"), Figures()),
            confidence=sure,
        ),
        evidence.finding(
            *("transfer-bound", limits["transfer"], sums.share("transfer"), Figures()),
            confidence=sure,
        ),
        evidence.finding(
            *("optimizer-heavy", limits["optimizer"], sums.share("optimizer")),
            Optimizer(ranks_unseen=hidden),
            confidence="low" if hidden else sure,
        ),
        _other_heavy(evidence),
        _idle(evidence),
    )
    yield from (finding for finding in others if finding)


def _other_heavy(evidence: Evidence) -> Finding | None:
    # To Kineto nearly all is other work that is neither an operation nor a kernel.
    if evidence.rank.process.source != "annotated":
        return None
    sums = BatchSums.of({"other": evidence.other_ns}, evidence.time, evidence.used)
    return evidence.finding(
        "other-heavy",
        evidence.limits["other"],
        sums.share("other"),
        Others(spans=evidence.longest_others),
        confidence=evidence.confidence,
    )


def _idle(evidence: Evidence) -> Finding | None:
    if evidence.gpu_told:
        return None
    return _host_bound(evidence) if evidence.signals.gpu else _not_annotated(evidence)


def _host_bound(evidence: Evidence) -> Finding | None:
    share = evidence.sums.share(*HOST_PARTS)
    limit = evidence.limits["host"]
    return evidence.finding("host-bound", limit, share, Figures(), confidence=evidence.confidence)


def _not_annotated(evidence: Evidence) -> Finding | None:
    limit = evidence.limits["not-annotated"]
    bursts = 0 if _is_typical(evidence) else _steps_with_most(evidence)
    signals = evidence.signals
    lacking = [name for name in ("forward", "backward", "optimizer") if not getattr(signals, name)]
    if evidence.hides_comm:
        lacking.append("communication")
    by_auto = signals.by_auto and not lacking
    return evidence.finding(
        "not-annotated",
        limit,
        BatchSums.of({"none": evidence.unnamed_ns}, evidence.time, evidence.used).share("none"),
        NotAnnotated(
            lacking=lacking,
            by_auto=by_auto,
            beside_comm=round(_beside_comm(evidence), 4),
            bursts=bursts,
        ),
        confidence="low" if lacking else evidence.confidence,
    )


def _beside_comm(evidence: Evidence) -> float:
    """Return in which share of the time that is in no span other threads communicate."""
    steps, spans, used = evidence.steps, evidence.rank.process.spans, evidence.used
    rows = np.flatnonzero(spans.has("comm") & (spans.tid != steps.tid))
    # Where it is not said who waits it is the main thread.
    (waits,) = spans.integers(rows, "waited_by")
    calls = spans.at(rows[(waits != NO_INTEGER) & (waits != steps.tid)])
    if not len(calls):
        return 0.0
    meanwhile = union(calls.start_ns, calls.end_ns)
    beside = int(covered_within(*meanwhile, steps.start_ns, steps.end_ns)[used].sum())
    for line in steps.line.lines():
        step = steps.within(line.start_ns)
        named = (step >= 0) & used[np.maximum(step, 0)] & (line.part != PART_CODE["other"])
        pieces = line.only(named)
        beside -= int(covered_within(*meanwhile, pieces.start_ns, pieces.end_ns).sum())
    unnamed = int(evidence.unnamed_ns[used].sum())
    return min(1.0, max(0, beside) / max(1, unnamed))


def _steps_with_most(evidence: Evidence) -> int:
    """Return how few steps have most of the time that is in no span: their shape may tell more."""
    largest = np.cumsum(np.sort(evidence.unnamed_ns[evidence.used])[::-1])
    return int(np.searchsorted(largest, MOST_OF_IT * largest[-1])) + 1


def is_usual_for_frameworks(evidence: Evidence) -> bool:
    """Return whether the usual step has time in no span, and no more than frameworks take."""
    return _is_typical(evidence) and bool(
        np.median(evidence.unnamed_ns[evidence.used]) < evidence.bound_ns("not-annotated-ms")
    )


def _is_typical(evidence: Evidence) -> bool:
    used, least = evidence.used, TYPICAL * evidence.limits["not-annotated"].warning
    unnamed = evidence.unnamed_ns[used]
    shares = unnamed / evidence.time[used]
    del unnamed
    return float(np.median(shares, overwrite_input=True)) >= least


def compute_bound(evidence: Evidence) -> Finding | None:
    """Return that nothing that is annotated is in the way of computation, where it is so."""
    parts: tuple[Part, ...] = ("forward", "backward", "optimizer", "compute")
    share = evidence.sums.share(*(("gpu",) if evidence.signals.gpu else parts))
    used = evidence.used
    idle = float(evidence.unnamed_ns[used].sum() / evidence.time[used].sum())
    if evidence.hides_comm or evidence.is_short or evidence.gpu_told:
        return None
    if max(idle, evidence.between) > MOST_NOT_ANNOTATED:
        return None
    limit = evidence.limits["compute"]
    sure = evidence.confidence
    found = evidence.finding("compute-bound", limit, share, Figures(), confidence=sure)
    return found and replace(found, severity="info")


@dataclass(frozen=True)
class _Cause:
    """Why, and the figures that show it."""

    name: str  # such as ``workers``; empty where nothing tells
    figures: Input  # times in nanoseconds


class _Worker(NamedTuple):
    """A process that loads, and when it is at work."""

    process: Process
    work: Spans
    start_ns: Integers
    end_ns: Integers


def _union_ns(spans: Iterable[Spans]) -> int:
    """Return how long processes were in any of their spans, added up over the processes."""
    total = 0
    for one in spans:
        start, end = union(one.start_ns, one.end_ns)
        total += int((end - start).sum())
    return total


def _cause_of_input(evidence: Evidence) -> _Cause:
    """Tell why the steps of a rank wait for data."""
    staff = [worker for one in evidence.rank.workers if (worker := _worker(one))]
    own = _own_work(evidence)
    cause = _slow_items(evidence, [worker.work for worker in staff] or [own])
    if cause is None:
        cause = _by_workers(evidence, staff) if staff else _by_own_work(evidence, own)
    figures = Input(**cause.figures, items_told=_items_are_told(evidence))
    if feeders := evidence.steps.feeders:
        figures["thread_busy"] = round(feeders.busy, 4)
    return _Cause(cause.name, figures)


def _items_are_told(evidence: Evidence) -> bool:
    """Return whether the rank, or a worker of its, says what it does for an item."""
    processes = (evidence.rank.process, *evidence.rank.workers)
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
    work = evidence.rank.process.spans.of(*WORK)
    tids = (steps.tid, *(steps.feeders.tids if steps.feeders else ()))
    work = work.at(np.isin(work.tid, tids))
    index = steps.within(work.start_ns)
    return work.at((index >= 0) & evidence.used[np.maximum(index, 0)])


def _slow_items(evidence: Evidence, works: Sequence[Spans]) -> _Cause | None:
    waits = np.sort(_waiting(evidence))[::-1]
    longest = waits[: max(1, int(len(waits) * FEW_WAITS))]
    items = [(work.of("item")) for work in works]
    lengths = np.concatenate([one.end_ns - one.start_ns for one in items])
    if len(lengths) < FEWEST_ITEMS:
        return None
    usual = float(np.median(lengths))
    of_waits = float(np.median(waits[: max(1, len(waits) // 20)]))
    bound = max(LONG_ITEM * usual, LONG_OF_WAIT * of_waits)
    long = lengths > bound
    if not 0 < long.mean() <= FEW_ITEMS or lengths[long].sum() < 0.5 * waits.sum():
        return None
    # Where a busy machine makes each batch late a few waits have less, but it is for these items.
    few = longest.sum() >= MOST_OF_WAITING * waits.sum()
    if not few and _waited_for(evidence, items, bound) < 0.5 * waits.sum():
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
    return _Cause(
        "slow-item",
        Input(
            items=int(long.sum()),
            workers=len(evidence.rank.workers),
            median_ns=int(usual),
            longest_ns=int(lengths.max()),
            longest=named[:NAMED_ITEMS],
        ),
    )


def _waited_for(evidence: Evidence, items: Sequence[Spans], bound_ns: float) -> int:
    """Return how long used steps waited while items took longer than that."""
    long = [one.at(one.end_ns - one.start_ns > bound_ns) for one in items]
    start, end = (np.concatenate([getattr(one, name) for one in long]) for name in TIMES)
    waits = evidence.steps.thread.of("wait")
    step = evidence.steps.within(waits.start_ns)
    waits = waits.at((step >= 0) & evidence.used[np.maximum(step, 0)])
    return int(covered_within(*union(start, end), waits.start_ns, waits.end_ns).sum())


def _by_own_work(evidence: Evidence, own: Spans) -> _Cause:
    work = _union_ns([own])
    if work < 0.5 * int(_waiting(evidence).sum()):
        return _Cause("", Input())
    return _Cause(_kind_of_work([own], "inline"), Input(workers=0))


def _kind_of_work(works: Sequence[Spans], otherwise: str) -> str:
    """Return which kind of work has at least half of the workers' time."""
    half = 0.5 * _union_ns(works)
    if _union_ns(work.of("collate") for work in works) >= half:
        return "collate"
    return "disk" if _union_ns(work.of("io") for work in works) >= half else otherwise


def _by_workers(evidence: Evidence, staff: Sequence[_Worker]) -> _Cause:
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
        return _Cause("", Input())  # by their clocks none was there meanwhile
    share = busy / life
    # The first steps of later loops are in the window, too, and their batches.
    batches = int(((steps.start_ns >= low) & (steps.end_ns <= high)).sum()) * steps.accumulation
    cost = busy / max(1, batches)
    rest = float(np.median((evidence.time - steps.time_of("wait", "data"))[used]))
    rest = max(1.0, rest / steps.accumulation)
    figures = Input(
        workers=at_once([(int(w.start_ns[0]), int(w.end_ns[-1])) for w in staff]),
        busy=round(share, 4),
        batches_a_step=steps.accumulation,
        batch_ns=int(cost),
        rest_ns=int(rest),
        needed=ceil(cost / rest),
        cores=evidence.rank.process.cores,
        ranks_of_host=1,  # until all ranks are known
        take_over_ns=int(np.median(_waiting(evidence))) // steps.accumulation,
    )
    inside = [
        worker.work.at((worker.work.start_ns >= low) & (worker.work.start_ns <= high))
        for worker in staff
    ]
    if share >= BUSY:
        return _Cause(_kind_of_work(inside, "workers"), figures)
    if share < IDLE:
        return _Cause("idle-workers", figures)
    return _Cause(_kind_of_work(inside, ""), figures)
