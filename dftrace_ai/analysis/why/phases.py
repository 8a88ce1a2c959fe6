"""Findings of a run's phases: its start, warm-up, checkpoints, evaluations, the workers' starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.steps.spans import union
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.analysis.why.statistics import alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding

__all__ = ["phase_findings", "worker_start"]

# So many usual steps have to pass before a start, or a warm-up, is a long one.
START_STEPS, WARM_UP_STEPS = 20, 10
# A checkpoint that begins so soon after the last step belongs to the training.
AFTER_LAST_NS: Final = 1_000_000


def phase_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield what costs the run time outside of steady steps.

    Args:
        evidence: of a rank with enough steps.
    """
    for rule in (_checkpoints, _evaluations, _start_up, _warm_up, worker_start):
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
        share_of="training",
        confidence="high" if times >= 3 else "medium",
        times=times,
        ns=saving,
    )


def _evaluations(evidence: Evidence) -> Finding | None:
    start, end = evidence.steps.evaluation
    if len(start) < 2:
        return None
    later = start >= evidence.steps.start_ns[0]
    judged = int((end - start)[later].sum())
    share = judged / evidence.wall_ns
    limit = evidence.limits["evaluation"]
    return evidence.finding(
        "evaluation-heavy", limit, share, share_of="run", times=len(start), ns=judged
    )


def _start_up(evidence: Evidence) -> Finding | None:
    median = evidence.steady.median_ns
    before = int(evidence.steps.start_ns[0]) - evidence.first_ns
    before += int(max(0, evidence.time[0] - median))
    if before <= max(START_STEPS * median, evidence.bound_ns("start-up-ms")):
        return None
    limit, share = evidence.limits["start-up"], before / evidence.wall_ns
    return evidence.finding(
        "start-up-heavy", limit, share, share_of="run", confidence="medium", ns=before
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
    if warm_up > 3 and alike(evidence.medians(slice(0, warm_up)), usual):
        return None
    return evidence.finding(
        "slow-warm-up",
        evidence.limits["warm-up"],
        excess / evidence.training_ns,
        share_of="training",
        cause=part,
        confidence="low" if part == "none" or evidence.crowded else "high",
        steps=warm_up,
        ns=int(excess),
    )


def worker_start(evidence: Evidence) -> Finding | None:
    """Return what the beginnings of loops cost: the first waits, and the gaps before them.

    Args:
        evidence: of a rank with enough steps.
    """
    steps = evidence.steps
    begins = np.flatnonzero(steps.first)
    begins = begins[begins > 0]
    if len(begins) < 2 or not evidence.rank.workers or steps.first.all():
        return None
    wait = steps.parts["wait"]
    usual = float(np.median(wait[~steps.first]))
    waited = float(np.maximum(wait[begins] - usual, 0).sum())
    line = evidence.beside_steps
    taken = union(
        np.concatenate([line.start_ns, steps.evaluation[0]]),
        np.concatenate([line.end_ns, steps.evaluation[1]]),
    )
    before, after = steps.end_ns[begins - 1], steps.start_ns[begins]
    gaps = np.maximum(0, after - before) - covered_within(*taken, before, np.maximum(before, after))
    cost = waited + float(np.maximum(gaps, 0).sum())
    return evidence.finding(
        "input-bound",
        evidence.limits["input"],
        cost / evidence.training_ns,
        share_of="training",
        cause="start-up",
        loops=int(steps.first.sum()),
        ns=int(cost),
    )
