"""Findings of how steps change: a rhythm, slow ones, slower and slower, two kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.robust_statistics import (
    Share,
    alike,
    batch_medians,
    binomial_tail,
    change_of,
    trend_of,
)
from dftrace_ai.analysis.steps.spans import rows_of
from dftrace_ai.analysis.steps.timeline import PART_CODE
from dftrace_ai.analysis.thresholds import Limit
from dftrace_ai.analysis.why.model import Drift, DriftSince, Rhythm, SlowSpan, SlowSteps, TwoKinds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.robust_statistics import Change
    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.analysis.steps.detection import FoundBy
    from dftrace_ai.analysis.thresholds import Confidence
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding

# Noise hides a beat at one height, not at the next.
HEIGHTS: Final = (4, 8, 16, 32)
LONGEST_PERIOD: Final = 1000
LEAST_BEATS, LEAST_EXCESS, MOST_BY_CHANCE = 4, 0.6, 1e-3

# One that is so many usual steps long is told whatever its share.
SLOW_STEP_TIMES: Final = 30

TREND_STEPS, TREND_BATCHES = 60, 30
LEAST_TAU, LINE_FITS, LEVELS_FIT, ONE_PART = 0.6, 1.2, 0.6, 0.6
# Of the growth a part has so much that is named; the fastest steps, in percent, grew by so much.
SOME_OF_IT: Final = 0.2
FASTEST, ALL_GREW = 10, 0.5

# Two kinds of steps: each is so much of all, and as far apart; within a kind they hardly differ,
# and they come by turns.
LEAST_OF_KIND, LEAST_APART, MOST_SPREAD, LEAST_TURNS = 0.1, 0.4, 0.4, 6
# At the cut where they differ most, shares of a kind that never changes differ by so many
# standard deviations.
MOST_BY_CUT: Final = 4.0
# Of the slow steps so many are slow in the part that is named.
NEARLY_ALL: Final = 0.9

# Found in one of these ways, an evaluation that nothing annotates looks like a step.
UNTOLD: Final[frozenset[FoundBy]] = frozenset({"step numbers", "optimizer ends"})


class Rhythmical(NamedTuple):
    """Steps that are slow at equal distances."""

    fit: float
    every: int
    members: Integers


def pattern_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield the rhythm in which steps are slow, or else single slow ones."""
    rhythm = rhythm_of(evidence)
    finding = _periodic(evidence, rhythm) if rhythm else None
    finding = finding or _slow_steps(evidence)
    if finding:
        yield finding


def _confidence(evidence: Evidence, part: Part) -> Confidence:
    untold = part == "forward" and _may_be_evaluation(evidence)
    return "low" if part == "none" or untold else "high"


def _may_be_evaluation(evidence: Evidence) -> bool:
    steps = evidence.steps
    return steps.found_by in UNTOLD and not len(steps.evaluation[0])


def _periodic(evidence: Evidence, rhythm: Rhythmical) -> Finding | None:
    median, members = evidence.steady.median_ns, rhythm.members
    excess = evidence.time[members] - median
    rest = evidence.single.copy()
    rest[members] = False
    part = evidence.part_that_grew(members, rest)
    collected = np.maximum(evidence.garbage_ns[members] - np.median(evidence.garbage_ns[rest]), 0)
    return evidence.finding(
        "periodic",
        evidence.limits["periodic"],
        float(excess.sum() / evidence.time[evidence.steady.mask].sum()),
        Rhythm(
            every=rhythm.every,
            times=len(members),
            extra_ns=int(np.median(excess)),
            untold_evaluation=part == "forward" and _may_be_evaluation(evidence),
            garbage=bool(collected.sum() >= ONE_PART * excess.sum()),
        ),
        cause=part,
        confidence=_confidence(evidence, part),
    )


def rhythm_of(evidence: Evidence) -> Rhythmical | None:
    """Return the rhythm that is least likely by chance."""
    median, scale = evidence.steady.median_ns, evidence.steady.scale_ns
    found: list[Rhythmical] = []
    for height in HEIGHTS:
        high = median + max(height * scale, height * 0.1 * median)
        found += _rhythms(evidence, evidence.single & (evidence.time > high))
    return min(found, key=lambda one: (round(one.fit, 2), one.every), default=None)


def _rhythms(evidence: Evidence, slow: Integers) -> Iterator[Rhythmical]:
    time, steady = evidence.time, evidence.steady
    at, total, count = np.flatnonzero(steady.mask), int(slow.sum()), len(time)
    if not LEAST_BEATS <= total <= len(at) / 2:
        return
    excess = np.where(slow, time - steady.median_ns, 0.0)
    slow_at = np.flatnonzero(slow)
    weights, whole = excess[slow_at], float(excess.sum())
    likely = total / len(at)
    longest = min(LONGEST_PERIOD, count // LEAST_BEATS)
    none_has_most = np.zeros(longest + 1, bool)
    for period in range(2, longest + 1):
        if none_has_most[period]:
            continue
        phases = slow_at % period
        held = np.bincount(phases, weights=weights, minlength=period)
        phase = int(np.argmax(held))
        if held[phase] < LEAST_EXCESS * whole:
            none_has_most[period::period] = True  # a phase of theirs is part of one of its own
            continue
        hits = int((phases == phase).sum())
        if hits < LEAST_BEATS:
            continue
        chances = int((at % period == phase).sum())
        if hits < evidence.limits["rhythm"].warning * chances:
            continue
        # By all periods and phases up to the longest, and all heights.
        tried = count**2 / 32 * len(HEIGHTS)
        if binomial_tail(hits, chances, likely) * tried < MOST_BY_CHANCE:
            fit = -float(held[phase]) / whole * hits / chances
            yield Rhythmical(fit, period, slow_at[phases == phase])


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
    part, ts_us = evidence.part_in_excess(slow), evidence.rank.process.ts_us
    return evidence.finding(
        "slow-step",
        Limit(0.0, limit.critical),
        lost / whole,
        SlowSteps(
            steps=np.flatnonzero(slow).tolist(),
            at_us=[ts_us(int(at)) for at in evidence.steps.start_ns[slow]],
            span=_longest_span(evidence, part, int(np.argmax(np.where(slow, evidence.time, 0)))),
            untold_evaluation=part == "forward" and _may_be_evaluation(evidence),
        ),
        share_of="training",
        cause=part,
        confidence=_confidence(evidence, part),
    )


def _longest_span(evidence: Evidence, part: Part, step: int) -> SlowSpan | None:
    """Return the span of a part that is longest in a step; None where the part has none."""
    steps = evidence.steps
    low, high = steps.start_ns[step], steps.end_ns[step]
    found = [np.zeros(0, np.int64)]
    for line in steps.line.lines(low, high):
        chosen = (line.part == PART_CODE[part]) & (line.start_ns >= low) & (line.end_ns <= high)
        found.append(line.span[chosen & (line.span >= 0)])
    owners = np.unique(np.concatenate(found))
    if not len(owners):
        return None
    lengths = steps.thread.end_ns[owners] - steps.thread.start_ns[owners]
    longest = int(owners[int(np.argmax(lengths))])
    label = steps.thread.label(longest)
    return SlowSpan(
        cat=label.cat,
        name=label.name,
        at_us=evidence.rank.process.ts_us(int(steps.thread.start_ns[longest])),
        ns=int(lengths.max()),
    )


def drift_of(evidence: Evidence) -> Finding | None:
    """Tell whether steps get slower all the time, or are slower since one of them."""
    used = np.flatnonzero(evidence.used)
    if len(used) < TREND_STEPS:
        return None
    batches = batch_medians(evidence.time[used], min(TREND_BATCHES, len(used) // 5))
    last = len(batches) - 1
    trend, change = trend_of(batches), change_of(batches)
    start = float(np.median(batches - trend.slope * np.arange(len(batches))))
    start = max(start, float(batches[: len(batches) // 4].min()), 1.0)
    share = Share(*(slope * last / start for slope in (trend.slope, trend.low, trend.high)))
    limit = evidence.limits["slower"]
    rises = trend.tau >= LEAST_TAU and change.misfit_of_line <= LINE_FITS * change.misfit
    rises = rises and share.low >= limit.warning
    rise = change.after / max(change.before, 1.0) - 1
    if not rises and not _jumps(batches, change, limit):
        return None
    usual = start if rises else change.before
    lost_ns = float(np.maximum(batches - usual, 0).mean()) * len(used)
    if lost_ns < evidence.bound_ns("slower-ms"):
        return None
    cut = used[int(change.at / len(batches) * len(used))]
    after, before = used[used >= cut], used[used < cut]
    if not rises and _is_chance_of_kinds(evidence, cut, limit):
        return None
    grown = _growth(evidence, used, len(batches)) if rises else _risen(evidence, before, after)
    part = max(grown, key=lambda name: grown[name])
    whole = sum(max(ns, 0.0) for ns in grown.values())
    told = Drift(
        shares=_first_and_last(evidence, part),
        parts=[name for name, ns in grown.items() if ns >= SOME_OF_IT * whole],
        alike=alike(evidence.medians(after), evidence.medians(before)),
    )
    sure: Confidence = _confidence(evidence, part)
    if not _all_grew(evidence.time[used], evidence.time[before], evidence.time[after]):
        sure = "low"
    if not rises and sure == "high":
        sure = "medium"
    if rises:
        found = evidence.finding(
            *("slower-and-slower", limit, share, told),
            share_of="growth",
            cause=part,
            confidence=sure,
            lost=lost_ns / evidence.training_ns,
        )
    else:
        at_us = evidence.rank.process.ts_us(int(evidence.steps.start_ns[cut]))
        found = evidence.finding(
            *(
                "slower-since",
                limit,
                rise,
                DriftSince(**told, step=int(evidence.steps.number[cut]), at_us=at_us),
            ),
            share_of="growth",
            cause=part,
            confidence=sure,
            lost=lost_ns / evidence.training_ns,
        )
    if found is None or not told["alike"]:
        return found
    # That is rather the machine, and no part of the program.
    return replace(found, cause="", severity="info")


def _growth(evidence: Evidence, used: Integers, batches: int) -> dict[Part, float]:
    """Return by how much each part grew along its trend, nanoseconds."""
    return {
        part: trend_of(batch_medians(values[used], batches)).slope * (batches - 1)
        for part, values in evidence.steps.parts.items()
    }


def _risen(evidence: Evidence, before: Integers, after: Integers) -> dict[Part, float]:
    """Return by how much the mean of each part rose, nanoseconds."""
    return {
        part: float(values[after].mean() - values[before].mean())
        for part, values in evidence.steps.parts.items()
    }


def _all_grew(time: Integers, before: Integers, after: Integers) -> bool:
    """Return whether the fastest steps got slower as well.

    On a machine that others use some steps are as fast as ever.
    """
    usual = float(np.median(after)) - float(np.median(before))
    fastest = float(np.percentile(after, FASTEST)) - float(np.percentile(before, FASTEST))
    return fastest >= ALL_GREW * usual


def _first_and_last(evidence: Evidence, part: Part) -> list[float]:
    """Return the share of a part in the first steps and in the last, of a fifth of them each."""
    used = np.flatnonzero(evidence.used)
    fifth = max(1, len(used) // 5)
    taken, time = evidence.steps.parts[part], evidence.time
    return [
        round(float(taken[chosen].sum() / time[chosen].sum()), 6)
        for chosen in (used[:fifth], used[-fifth:])
    ]


def _jumps(batches: Integers, change: Change, limit: Limit) -> bool:
    levels = np.where(np.arange(len(batches)) < change.at, change.before, change.after)
    residual = batches - levels
    spread = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    return (
        change.after >= (1 + limit.warning) * change.before
        and change.after - change.before > 6 * max(spread, 1.0)
        and change.misfit < LEVELS_FIT * change.misfit_of_line
    )


class _Kinds(NamedTuple):
    """Two kinds of steps, as a mask of the slow one, and which steps that is of."""

    slow: Integers
    at: Integers


def _is_chance_of_kinds(evidence: Evidence, cut: int, limit: Limit) -> bool:
    """Tell whether steps are of the same two kinds before a cut and after it, about as often."""
    kinds = _kinds(evidence)
    if kinds is None:
        return False
    time, later = evidence.time[kinds.at], kinds.at >= cut
    for kind in (kinds.slow, ~kinds.slow):
        before, after = time[kind & ~later], time[kind & later]
        if (
            not len(before)
            or not len(after)
            or np.median(after) > (1 + limit.warning) * np.median(before)
        ):
            return False
    share = float(kinds.slow.mean())
    differs = abs(float(kinds.slow[later].mean() - kinds.slow[~later].mean()))
    usual = np.sqrt(share * (1 - share) * (1 / later.sum() + 1 / (~later).sum()))
    return bool(differs <= MOST_BY_CUT * usual)


def two_kinds_of(evidence: Evidence) -> Finding | None:
    """Return that steps are of two kinds, one of which is slow in one part."""
    kinds = _kinds(evidence)
    if kinds is None:
        return None
    time, slow = evidence.time[kinds.at], kinds.slow
    with_it, without = evidence.medians(kinds.at[slow]), evidence.medians(kinds.at[~slow])
    part = max(with_it, key=lambda name: with_it[name] - without[name])
    fast = float(np.median(time[~slow]))
    # Steps that get a processor and that wait for one are two kinds, too: these wait anywhere.
    excess = evidence.steps.parts[part][kinds.at[slow]] - without[part]
    if np.mean(excess >= ONE_PART * (time[slow] - fast)) < NEARLY_ALL or alike(with_it, without):
        return None
    return evidence.finding(
        "two-kinds",
        evidence.limits["two-kinds"],
        float((time[slow] - fast).sum() / time.sum()),
        TwoKinds(
            fast_ns=int(fast),
            slow_ns=int(np.median(time[slow])),
            slow_share=round(float(slow.mean()), 6),
        ),
        cause=part,
        confidence=_confidence(evidence, part),
    )


def _kinds(evidence: Evidence) -> _Kinds | None:
    """Return the steps in two kinds between which hardly any lie, where they come by turns."""
    at = rows_of(evidence.used)
    if len(at) < TREND_STEPS:
        return None
    order = evidence.time[at].astype(float)
    order.sort()
    few = max(LEAST_BEATS, int(LEAST_OF_KIND * len(order)))
    # Where the widest gap is, of logarithms, that leaves enough on both sides.
    gaps = np.diff(np.log(order))[few - 1 : len(order) - few]
    if not len(gaps):
        return None
    cut = int(np.argmax(gaps)) + few
    del gaps
    low, high = order[:cut], order[cut:]
    apart = float(np.median(high) - np.median(low))
    spread = max(float(np.percentile(one, 75) - np.percentile(one, 25)) for one in (low, high))
    if apart < LEAST_APART * float(np.median(low)) or spread > MOST_SPREAD * apart:
        return None
    slow = evidence.time[at] > order[cut - 1]
    # What changes once or twice is a spell, or since then.
    turns = int((slow[1:] != slow[:-1]).sum())
    return _Kinds(slow, at) if turns >= LEAST_TURNS else None
