"""Findings of how steps differ from each other: a rhythm, single slow ones, slower and slower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.steps.timeline import PART_CODE
from dftrace_ai.analysis.why.limits import Limit
from dftrace_ai.analysis.why.statistics import (
    Share,
    alike,
    batch_medians,
    binomial_tail,
    change_of,
    trend_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.analysis.steps.finding import FoundBy
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Confidence, Finding
    from dftrace_ai.analysis.why.statistics import Change

__all__ = ["drift_of", "pattern_findings"]

# Noise hides a beat at one height, not at the next.
HEIGHTS: Final = (4, 8, 16, 32)
LONGEST_PERIOD: Final = 1000
LEAST_BEATS, LEAST_EXCESS, MOST_BY_CHANCE = 4, 0.6, 1e-3

# One that is so many usual steps long is told whatever its share.
SLOW_STEP_TIMES: Final = 30

TREND_STEPS, TREND_BATCHES = 60, 30
LEAST_TAU, LINE_FITS, LEVELS_FIT, LEAST_RISE, ONE_PART = 0.6, 1.2, 0.6, 1.3, 0.6

# Found in one of these ways, an evaluation that nothing annotates looks like a step.
UNTOLD: Final[frozenset[FoundBy]] = frozenset({"step numbers", "optimizer ends"})


class _Rhythm(NamedTuple):
    """Steps that are slow at equal distances."""

    fit: float
    every: int
    members: Integers


def pattern_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield the rhythm in which steps are slow, or else single slow ones.

    Args:
        evidence: of a rank with enough steps.
    """
    rhythm = _rhythm(evidence)
    finding = _periodic(evidence, rhythm) if rhythm else None
    finding = finding or _slow_steps(evidence)
    if finding:
        yield finding


def _confidence(evidence: Evidence, part: Part) -> Confidence:
    untold = part == "forward" and _may_be_evaluation(evidence)
    return "low" if part == "none" or untold or evidence.crowded else "high"


def _may_be_evaluation(evidence: Evidence) -> bool:
    steps = evidence.steps
    return steps.found_by in UNTOLD and not len(steps.evaluation[0])


def _periodic(evidence: Evidence, rhythm: _Rhythm) -> Finding | None:
    median, members = evidence.steady.median_ns, rhythm.members
    excess = evidence.time[members] - median
    rest = evidence.steady.mask.copy()
    rest[members] = False
    with_it, without = evidence.medians(members), evidence.medians(rest)
    part = max(with_it, key=lambda name: with_it[name] - without[name])
    return evidence.finding(
        "periodic",
        evidence.limits["periodic"],
        float(excess.sum() / evidence.time[evidence.steady.mask].sum()),
        cause=part,
        confidence=_confidence(evidence, part),
        every=rhythm.every,
        times=len(members),
        extra_ns=int(np.median(excess)),
        untold_evaluation=part == "forward" and _may_be_evaluation(evidence),
    )


def _rhythm(evidence: Evidence) -> _Rhythm | None:
    """Return the rhythm that is least likely by chance."""
    median, scale = evidence.steady.median_ns, evidence.steady.scale_ns
    found: list[_Rhythm] = []
    for height in HEIGHTS:
        high = median + max(height * scale, height * 0.1 * median)
        found += _rhythms(evidence, evidence.steady.mask & (evidence.time > high))
    return min(found, key=lambda one: (round(one.fit, 2), one.every), default=None)


def _rhythms(evidence: Evidence, slow: Integers) -> Iterator[_Rhythm]:
    time, steady = evidence.time, evidence.steady
    at, total, count = np.flatnonzero(steady.mask), int(slow.sum()), len(time)
    if not LEAST_BEATS <= total <= len(at) / 2:
        return
    excess = np.where(slow, time - steady.median_ns, 0.0)
    slow_at = np.flatnonzero(slow)
    weights, whole = excess[slow_at], float(excess.sum())
    likely = total / len(at)
    for period in range(2, min(LONGEST_PERIOD, count // LEAST_BEATS) + 1):
        phases = slow_at % period
        held = np.bincount(phases, weights=weights, minlength=period)
        phase = int(np.argmax(held))
        hits = int((phases == phase).sum())
        if hits < LEAST_BEATS or held[phase] < LEAST_EXCESS * whole:
            continue
        chances = int((at % period == phase).sum())
        if hits < evidence.limits["rhythm"].warning * chances:
            continue
        # By all periods and phases up to the longest, and all heights.
        tried = count**2 / 32 * len(HEIGHTS)
        if binomial_tail(hits, chances, likely) * tried < MOST_BY_CHANCE:
            fit = -float(held[phase]) / whole * hits / chances
            yield _Rhythm(fit, period, slow_at[phases == phase])


def _slow_steps(evidence: Evidence) -> Finding | None:
    slow = evidence.isolated
    if not slow.any():
        return None
    median, whole = evidence.steady.median_ns, float(evidence.time.sum())
    lost = float((evidence.calmed[slow] - median).sum())
    worst = float(evidence.time[slow].max()) - median
    limit = evidence.limits["slow-step"]
    if lost < limit.warning * whole and worst <= SLOW_STEP_TIMES * median:
        return None
    usual, ts_us = evidence.medians(evidence.steady.mask), evidence.rank.process.ts_us
    more: dict[Part, float] = {
        part: float(np.maximum(values[slow] - usual[part], 0).sum())
        for part, values in evidence.steps.parts.items()
    }
    part = max(more, key=lambda name: more[name])
    return evidence.finding(
        "slow-step",
        Limit(0.0, limit.critical),
        lost / whole,
        share_of="training",
        cause=part,
        confidence=_confidence(evidence, part),
        steps=np.flatnonzero(slow).tolist(),
        at_us=[ts_us(int(at)) for at in evidence.steps.start_ns[slow]],
        span=_longest_span(evidence, part, int(np.argmax(np.where(slow, evidence.time, 0)))),
        untold_evaluation=part == "forward" and _may_be_evaluation(evidence),
    )


def _longest_span(evidence: Evidence, part: Part, step: int) -> dict[str, object] | None:
    """Return the span of a part that is longest in a step; None where the part has none."""
    steps = evidence.steps
    low, high = steps.start_ns[step], steps.end_ns[step]
    line = steps.timeline
    chosen = (line.part == PART_CODE[part]) & (line.start_ns >= low) & (line.end_ns <= high)
    owners = np.unique(line.span[chosen & (line.span >= 0)])
    if not len(owners):
        return None
    lengths = steps.thread.end_ns[owners] - steps.thread.start_ns[owners]
    longest = int(owners[int(np.argmax(lengths))])
    label = steps.thread.label(longest)
    return {
        "cat": label.cat,
        "name": label.name,
        "at_us": evidence.rank.process.ts_us(int(steps.thread.start_ns[longest])),
        "ns": int(lengths.max()),
    }


class _Drift(NamedTuple):
    """That steps got slower; or a note where the whole machine did."""

    finding: Finding | None = None
    note: str = ""


def drift_of(evidence: Evidence) -> _Drift:
    """Tell whether steps get slower all the time, or are slower since one of them.

    Args:
        evidence: of a rank with enough steps.
    """
    used = np.flatnonzero(evidence.used)
    if len(used) < TREND_STEPS:
        return _Drift()
    batches = batch_medians(evidence.time[used], min(TREND_BATCHES, len(used) // 5))
    last = len(batches) - 1
    trend, change = trend_of(batches), change_of(batches)
    start = float(np.median(batches - trend.slope * np.arange(len(batches))))
    start = max(start, float(batches[: len(batches) // 4].min()), 1.0)
    growth, least = trend.slope * last / start, trend.low * last / start
    limit = evidence.limits["slower"]
    rises = trend.tau >= LEAST_TAU and change.misfit_of_line <= LINE_FITS * change.misfit
    rises = rises and least >= limit.warning
    jumps = _jumps(batches, change)
    if not rises and not jumps:
        return _Drift()
    usual = start if rises else change.before
    lost_ns = float(np.maximum(batches - usual, 0).mean()) * len(used)
    if lost_ns < evidence.bound_ns("slower-ms"):
        return _Drift()
    cut = used[int(change.at / len(batches) * len(used))]
    after, before = evidence.medians(used[used >= cut]), evidence.medians(used[used < cut])
    if alike(after, before):
        by = max(growth if rises else change.after / max(change.before, 1.0) - 1, 0.0)
        return _Drift(
            note=f"all parts of a step got slower alike, by {by:.0%}: that is the machine "
            "(other jobs, its clock), and no part of the program"
        )
    grown: dict[Part, float] = {
        part: trend_of(batch_medians(values[used], len(batches))).slope * last
        for part, values in evidence.steps.parts.items()
    }
    part = max(grown, key=lambda name: grown[name])
    if grown[part] < ONE_PART * trend.slope * last:
        return _Drift()
    sure = _confidence(evidence, part)
    shares = _first_and_last(evidence, part)
    if rises:
        share = Share(growth, least, trend.high * last / start)
        return _Drift(
            evidence.finding(
                "slower-and-slower",
                limit,
                share,
                share_of="growth",
                cause=part,
                confidence=sure,
                shares=shares,
            )
        )
    rise = change.after / max(change.before, 1.0) - 1
    sure = "low" if sure == "low" else "medium"
    return _Drift(
        evidence.finding(
            "slower-since",
            limit,
            rise,
            share_of="growth",
            cause=part,
            confidence=sure,
            shares=shares,
            step=int(cut),
            at_us=evidence.rank.process.ts_us(int(evidence.steps.start_ns[cut])),
        )
    )


def _first_and_last(evidence: Evidence, part: Part) -> list[float]:
    """Return the share of a part in the first steps and in the last, of a fifth of them each."""
    used = np.flatnonzero(evidence.used)
    fifth = max(1, len(used) // 5)
    taken, time = evidence.steps.parts[part], evidence.time
    return [
        round(float(taken[chosen].sum() / time[chosen].sum()), 6)
        for chosen in (used[:fifth], used[-fifth:])
    ]


def _jumps(batches: Integers, change: Change) -> bool:
    levels = np.where(np.arange(len(batches)) < change.at, change.before, change.after)
    residual = batches - levels
    spread = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    spread = max(spread, 0.02 * change.before, 1.0)
    return (
        change.after > LEAST_RISE * change.before
        and change.after - change.before > 6 * spread
        and change.misfit < LEVELS_FIT * change.misfit_of_line
    )
