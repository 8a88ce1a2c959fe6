"""Findings of a run's phases: its start, warm-up, checkpoints, evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.steps.spans import union
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.analysis.why.figures import (
    CHECKPOINT_BOUND,
    EVALUATION_HEAVY,
    SLOW_WARM_UP,
    START_UP_HEAVY,
    Checkpoints,
    Evaluations,
    StartUp,
    WarmUp,
)
from dftrace_ai.analysis.why.statistics import alike
from dftrace_ai.analysis.why.words import percent, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding

__all__ = ["phase_findings", "start_note"]

# So many usual steps have to pass before a start, or a warm-up, is a long one.
START_STEPS, WARM_UP_STEPS = 20, 10
# A checkpoint that begins so soon after the last step belongs to the training.
AFTER_LAST_NS: Final = 1_000_000


def phase_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield what costs the run time outside of steady steps.

    Args:
        evidence: of a rank with enough steps.
    """
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
        CHECKPOINT_BOUND,
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
    later = start >= evidence.steps.start_ns[0]
    judged = int((end - start)[later].sum())
    told_start, told_end = evidence.steps.evaluation
    told = int((told_end - told_start)[told_start >= evidence.steps.start_ns[0]].sum())
    by_mode = judged - told > judged / 2
    return evidence.finding(
        EVALUATION_HEAVY,
        evidence.limits["evaluation"],
        judged / evidence.wall_ns,
        Evaluations(times=int(later.sum()), ns=judged, by_mode=by_mode),
        share_of="run",
        confidence="medium" if by_mode else "high",
    )


def _start_up(evidence: Evidence) -> Finding | None:
    found = _before_second_step(evidence)
    lasted_s = evidence.wall_ns / 1e9
    return found if lasted_s >= evidence.limits["start-up-run-s"].warning else None


def start_note(evidence: Evidence) -> str:
    """Return that most of a run passed before its second step, where it was a short one.

    Args:
        evidence: of a rank with enough steps.
    """
    found = None if _start_up(evidence) else _before_second_step(evidence)
    if found is None:
        return ""
    before = time_text(START_UP_HEAVY.of(found)["ns"])
    return f"{percent(found.share)} of this short run, {before}, passed before the second step"


def _before_second_step(evidence: Evidence) -> Finding | None:
    median = evidence.steady.median_ns
    before = int(evidence.steps.start_ns[0]) - evidence.first_ns
    before += int(max(0, evidence.time[0] - median))
    if before <= max(START_STEPS * median, evidence.bound_ns("start-up-ms")):
        return None
    limit, share = evidence.limits["start-up"], before / evidence.wall_ns
    return evidence.finding(
        START_UP_HEAVY, limit, share, StartUp(ns=before), share_of="run", confidence="medium"
    )


def _warm_up(evidence: Evidence) -> Finding | None:
    steps, steady = evidence.steps, evidence.steady
    warm_up, median = steady.warm_up, steady.median_ns
    excess = float(np.maximum(evidence.time[1:warm_up] - median, 0).sum())
    if excess <= max(WARM_UP_STEPS * median, evidence.bound_ns("warm-up-ms")):
        return None
    usual = evidence.medians(steady.mask)
    more: dict[Part, float] = {
        part: float(np.maximum(values[:warm_up] - usual[part], 0).sum())
        for part, values in steps.parts.items()
    }
    part = max(more, key=lambda name: more[name])
    # A first batch that the workers' start delays is told as such.
    if part == "wait" and warm_up <= 2:
        return None
    # Every loop begins so, and not the run alone.
    if warm_up <= evidence.beginnings.steps:
        return None
    if warm_up > 3 and alike(evidence.medians(slice(0, warm_up)), usual):
        return None
    return evidence.finding(
        SLOW_WARM_UP,
        evidence.limits["warm-up"],
        excess / evidence.training_ns,
        WarmUp(steps=warm_up, ns=int(excess)),
        share_of="training",
        cause=part,
        confidence="low" if part == "none" or evidence.crowded else "high",
    )
