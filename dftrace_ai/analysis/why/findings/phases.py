"""Findings of what is no steady step: start, warm-up, checkpoints, evaluations, ends of loops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.robust_statistics import alike
from dftrace_ai.analysis.steps.measuring import STEP_PARTS
from dftrace_ai.analysis.steps.spans import union
from dftrace_ai.analysis.steps.timeline import PART_CODE, covered_within
from dftrace_ai.analysis.texts import percent, time_text
from dftrace_ai.analysis.why.evidence import LEAST_LOOPS, at_once, first_steps
from dftrace_ai.analysis.why.model import (
    START_UP,
    Between,
    Checkpoints,
    Evaluations,
    Input,
    LoopStart,
    SpanShare,
    StartUp,
    WarmUp,
    figures_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part, Steps
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding

# So many usual steps have to pass before a start, or a warm-up, is a long one.
START_STEPS, WARM_UP_STEPS = 20, 10
# A checkpoint that begins so soon after the last step belongs to the training.
AFTER_LAST_NS: Final = 1_000_000

WORKERS_START: Final = ("dataloader", "dataloader.workers.start")

# What of the time between steps other findings tell.
LOADING: Final[tuple[Part, ...]] = ("data", "wait")
NAMED_ELSEWHERE: Final[tuple[Part, ...]] = ("checkpoint", *LOADING)
# Most of the time between steps is that of so few gaps, or else of nearly all.
MOST_OF_GAPS, MANY_GAPS = 0.9, 0.5
# With so much of forward passes it may be an evaluation.
SOME_FORWARD: Final = 0.1


def phase_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield what costs the run time outside of steady steps."""
    for rule in (_checkpoints, _evaluations, _start_up, _warm_up):
        finding = rule(evidence)
        if finding:
            yield finding


def _checkpoints(evidence: Evidence) -> Finding | None:
    steps = evidence.steps
    first, last = int(steps.start_ns[0]), int(steps.end_ns[-1])
    spans = steps.thread.of("checkpoint")
    spans = spans.at((spans.start_ns >= first) & (spans.start_ns < last + AFTER_LAST_NS))
    start, _ = union(spans.start_ns, spans.end_ns)
    times = int((start <= last).sum())
    if times < 2:
        return None
    end = max(last, int(spans.end_ns.max()))
    window = np.array([first]), np.array([end])
    saving = int(covered_within(*steps.timeline.of("checkpoint"), *window)[0])
    return evidence.finding(
        "checkpoint-bound",
        evidence.limits["checkpoint"],
        saving / (end - first),
        Checkpoints(times=times, ns=saving),
        share_of="training",
        confidence="high" if times >= 3 else "medium",
    )


def _evaluations(evidence: Evidence) -> Finding | None:
    start, end = evidence.evaluations
    if len(start) < 2:
        return None
    # That before the first step, too, as a summary adds them up.
    judged = int((end - start).sum())
    told_start, told_end = evidence.steps.evaluation
    told = int((told_end - told_start).sum())
    by_mode = judged - told > judged / 2
    return evidence.finding(
        "evaluation-heavy",
        evidence.limits["evaluation"],
        judged / evidence.wall_ns,
        Evaluations(times=len(start), ns=judged, by_mode=by_mode),
        share_of="run",
        confidence="medium" if by_mode else "high",
    )


def _start_up(evidence: Evidence) -> Finding | None:
    found = _before_second_step(evidence)
    lasted_s = evidence.wall_ns / 1e9
    return found if lasted_s >= evidence.limits["start-up-run-s"].warning else None


def start_notes(evidence: Evidence) -> Iterator[str]:
    """Yield what beginnings cost, of a run that is too short to say what they cost a longer one."""
    found = None if _start_up(evidence) else _before_second_step(evidence)
    if found is not None:
        before = time_text(figures_of(found, StartUp)["ns"])
        share = percent(found.share)
        yield f"{share} of this short run, {before}, passed before the second step"
    found = None if _start_of_loading(evidence) else _beginnings_of_passes(evidence)
    if found is not None:
        figures = figures_of(found, Input)
        passes = f"{figures['passes']} passes over the loader"
        by = f"the beginnings of {passes}"
        if figures["by_workers"]:
            by = f"starting the loader's workers for {passes}"
        share, cost = percent(found.share), time_text(figures["ns"])
        needed = f"{LEAST_LOOPS + 1} are needed to judge it"
        yield f"{share} of the training, {cost}, went to {by}; {needed}"


def _before_second_step(evidence: Evidence) -> Finding | None:
    median = evidence.steady.median_ns
    before = int(evidence.steps.start_ns[0]) - evidence.first_ns
    before += int(max(0, evidence.time[0] - median))
    if before <= max(START_STEPS * median, evidence.bound_ns("start-up-ms")):
        return None
    limit, share = evidence.limits["start-up"], before / evidence.wall_ns
    return evidence.finding(
        "start-up-heavy", limit, share, StartUp(ns=before), share_of="run", confidence="medium"
    )


def _warm_up(evidence: Evidence) -> Finding | None:
    steady = evidence.steady
    warm_up, median = steady.warm_up, steady.median_ns
    excess = float(np.maximum(evidence.time[1:warm_up] - median, 0).sum())
    if excess <= max(WARM_UP_STEPS * median, evidence.bound_ns("warm-up-ms")):
        return None
    part = evidence.part_in_excess(slice(warm_up))
    # A first batch that the workers' start delays is told as such.
    if part == "wait" and warm_up <= 2:
        return None
    # Every loop begins so, and not the run alone.
    if warm_up <= evidence.beginnings.steps:
        return None
    if warm_up > 3 and alike(evidence.medians(slice(warm_up)), evidence.medians(steady.mask)):
        return None
    return evidence.finding(
        "slow-warm-up",
        evidence.limits["warm-up"],
        excess / evidence.training_ns,
        WarmUp(steps=warm_up, ns=int(excess)),
        share_of="training",
        cause=part,
        confidence="low" if part == "none" else "high",
    )


def loop_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield what the beginnings of loops cost, and the time between steps."""
    if evidence.is_short:
        found = _between_steps(evidence)
        if found and found.severity == "critical":
            yield replace(found, confidence="low")
        return
    for rule in (_start_of_loading, _slow_beginnings, _between_steps):
        finding = rule(evidence)
        if finding:
            yield finding


class _Starts(NamedTuple):
    """What each beginning of a loop costs the loader, and for which workers were started."""

    cost_ns: Integers
    started: Integers


def _start_of_loading(evidence: Evidence) -> Finding | None:
    found = _beginnings_of_passes(evidence)
    enough = int((evidence.beginnings.begins > 0).sum()) >= LEAST_LOOPS
    return found if enough else None


def _beginnings_of_passes(evidence: Evidence) -> Finding | None:
    """Return what it costs to begin to load: the first waits, and the starts of workers."""
    steps, begins = evidence.steps, evidence.beginnings.begins
    later = begins > 0
    if not later.any() or steps.first.all():
        return None
    starts = _starts(evidence)
    cost, started = starts.cost_ns, starts.started
    # The first of the run has to wait for much else as well.
    usual = float(np.median(cost[later]))
    cost = np.where(later, cost, np.minimum(cost, usual))
    whole, of_workers = float(cost.sum()), float(cost[started].sum())
    by_workers = of_workers > whole / 2
    if not by_workers and whole < evidence.bound_ns("loops-ms"):
        return None
    return evidence.finding(
        "input-bound",
        evidence.limits["input"],
        whole / evidence.training_ns,
        Input(
            loops=int(started.sum() if by_workers else len(begins)),
            passes=len(begins),
            workers_started=int(started.sum()),
            by_workers=by_workers,
            first_batch_ns=int(usual),
            ns=int(whole),
        ),
        share_of="training",
        cause=START_UP,
    )


def _starts(evidence: Evidence) -> _Starts:
    steps, begins = evidence.steps, evidence.beginnings.begins
    waits = steps.time_of("wait", "data")
    lives = [w.spans for w in evidence.rank.workers if len(w.spans)]
    burst = at_once([(int(w.start_ns[0]), int(w.end_ns.max())) for w in lives])
    usual = _usual_wait(waits[~steps.first], burst)
    ends = np.append(begins[1:], len(steps))
    of_first, excess = waits[begins], waits - usual
    del waits
    np.maximum(excess, 0, out=excess)
    excess[~first_steps(begins, max(1, evidence.beginnings.waits), len(steps))] = 0
    sums = np.zeros(len(steps) + 1)
    np.cumsum(excess, out=sums[1:])
    cost = sums[ends] - sums[begins]
    # What leads to a loop, behind the evaluation before it.
    low, high = _end_before(steps, begins), steps.start_ns[begins]
    _, judged = evidence.apart
    if len(judged):
        last = np.searchsorted(judged, high, side="right") - 1
        low = np.maximum(low, np.where(last >= 0, judged[np.maximum(last, 0)], low))
    told = steps.thread.start_ns[steps.thread.called(*WORKERS_START)]
    first_seen = np.array(
        [worker.spans.start_ns[0] for worker in evidence.rank.workers if len(worker.spans)],
        np.int64,
    )
    begun = np.sort(np.concatenate([told, first_seen]))
    # A worker shows itself with its first item, while the loop waits for the first batch.
    seen_until = steps.start_ns[begins] + of_first
    started = np.searchsorted(begun, seen_until) > np.searchsorted(begun, low)
    line = evidence.beside_steps
    loading = line.only(np.isin(line.part, [PART_CODE[part] for part in LOADING]))
    before = covered_within(loading.start_ns, loading.end_ns, low, np.maximum(low, high))
    cost = cost + np.where(begins > 0, before, 0)
    if not len(told):
        # By hand nothing says where workers are started: before the first wait, and no longer.
        gap = np.maximum(high - low, 0) - before
        cost = cost + np.where(started & (begins > 0), np.minimum(gap, cost), 0)
    return _Starts(cost, started)


def _usual_wait(waits: Integers, burst: int) -> float:
    """Return the longest wait of a usual burst: workers that began together are ready together."""
    burst = min(max(burst, 1), len(waits))
    if burst < 2:
        return float(np.median(waits))
    return float(np.median(np.lib.stride_tricks.sliding_window_view(waits, burst).max(axis=1)))


def _end_before(steps: Steps, begins: Integers) -> Integers:
    before = np.minimum(steps.end_ns[np.maximum(begins - 1, 0)], steps.start_ns[begins])
    ends: Integers = np.where(begins > 0, before, 0)
    return ends


def _slow_beginnings(evidence: Evidence) -> Finding | None:
    """Return that the first steps of each loop are slow, in what is no wait for data."""
    begun, steps = evidence.beginnings, evidence.steps
    if not begun.steps:
        return None
    slow, rest = begun.members, evidence.steady.mask & ~begun.members
    waits = steps.time_of("wait", "data")
    body = steps.time_ns - waits
    usual = float(np.median(body[rest]))
    cost = float(np.maximum(body[slow] - usual, 0).sum())
    if cost < evidence.bound_ns("loops-ms"):
        return None
    parts = (part for part in STEP_PARTS if part not in LOADING)
    part = evidence.part_that_grew(slow, rest, parts)
    return evidence.finding(
        "slow-loop-start",
        evidence.limits["loop-start"],
        cost / evidence.training_ns,
        LoopStart(
            steps=begun.steps,
            loops=len(begun.begins),
            times=float(np.median(body[slow]) / max(usual, 1.0)),
            ns=int(cost),
        ),
        share_of="training",
        cause=part,
        confidence="low" if part == "none" else "high",
    )


def _between_steps(evidence: Evidence) -> Finding | None:
    """Return the time between steps that is no evaluation, no checkpoint and no loading."""
    steps = evidence.steps
    begin, end = steps.end_ns[:-1], np.maximum(steps.start_ns[1:], steps.end_ns[:-1])
    line = evidence.beside_steps
    told = line.only(np.isin(line.part, [PART_CODE[part] for part in NAMED_ELSEWHERE]))
    taken = union(
        np.concatenate([told.start_ns, evidence.apart[0]]),
        np.concatenate([told.end_ns, evidence.apart[1]]),
    )
    gaps = end - begin - covered_within(*taken, begin, end)
    whole = int(gaps.sum())
    if whole < evidence.bound_ns("loops-ms"):
        return None
    by_length = np.sort(gaps)[::-1]
    times = int(np.searchsorted(np.cumsum(by_length), MOST_OF_GAPS * whole)) + 1
    of_loops = int(gaps[steps.first[1:]].sum()) > whole / 2
    return evidence.finding(
        "between-steps",
        evidence.limits["between"],
        whole / evidence.training_ns,
        Between(
            times=times,
            each=not of_loops and times > MANY_GAPS * len(gaps),
            ns=whole,
            spans=_named_between(evidence, taken, float(evidence.training_ns)),
            workers_unseen=of_loops and evidence.signals.loader and not evidence.signals.data,
            untold_evaluation=_forwards(evidence, begin, end) >= SOME_FORWARD * whole,
        ),
        share_of="training",
        cause="loops" if of_loops else "steps",
    )


def _forwards(evidence: Evidence, begin: Integers, end: Integers) -> int:
    """Return the time of forward passes in gaps in which nothing learns, nanoseconds."""
    line = evidence.beside_steps
    forward = line.only(line.part == PART_CODE["forward"])
    learning = line.only(np.isin(line.part, [PART_CODE["backward"], PART_CODE["optimizer"]]))
    learns = covered_within(learning.start_ns, learning.end_ns, begin, end) > 0
    inside = covered_within(forward.start_ns, forward.end_ns, begin, end)
    return int(inside[~learns].sum())


def _named_between(
    evidence: Evidence, taken: tuple[Integers, Integers], whole: float
) -> list[SpanShare]:
    """Return which spans have most of the time between steps, with their share of the training."""
    steps, line = evidence.steps, evidence.beside_steps
    inside = (line.start_ns >= steps.end_ns[0]) & (line.end_ns <= steps.start_ns[-1])
    line = line.only(inside & (line.span >= 0))
    ns = line.end_ns - line.start_ns - covered_within(*taken, line.start_ns, line.end_ns)
    return evidence.longest_spans(line, ns, whole)
