"""What a rank did over its whole run: start-up, warm-up, steps, what lies between them, its end."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.report.model import Phase, PhaseFigures
from dftrace_ai.analysis.steps.timeline import PARTS, covered_within
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.report.model import PhaseKind, StepFigures
    from dftrace_ai.analysis.steps import Steps

LANE_STRETCHES: Final = 400
# Of more steps a stretch holds so many that it makes no difference where in a step it ends.
FEW_STEPS: Final = 20 * LANE_STRETCHES
MOST_PHASES: Final = 1500
MOST_LOOPS: Final = 300
# Between two steps for so many medians and so long nothing that is annotated: a stall.
STALL_MEDIANS: Final = 20.0
STALL_NS: Final = 50e6


def phase_figures(steps: Steps, facts: StepFigures, first_ns: int, last_ns: int) -> PhaseFigures:
    """Return what a rank did from the first event of the run to its last."""
    found = sorted(_phases(steps, facts, first_ns, last_ns), key=lambda one: one[0] - one[1])
    return PhaseFigures(
        rank=facts.rank,
        spent_s=_spent(steps, facts.warm_up, first_ns, last_ns),
        phases=[
            Phase((low - first_ns) / 1e9, (high - first_ns) / 1e9, kind, name)
            for low, high, kind, name in sorted(found[:MOST_PHASES])
        ],
        phases_left_out=max(0, len(found) - MOST_PHASES),
        lane=_lane(steps, first_ns, last_ns),
    )


def _spent(steps: Steps, warm_up: int, first_ns: int, last_ns: int) -> dict[str, float]:
    """Return how long each phase took: every moment of the run is in one of them."""
    reach = np.maximum.accumulate(steps.end_ns)
    start = np.maximum(steps.start_ns, np.append(steps.start_ns[:1], reach[:-1]))
    edges = np.array([first_ns, max(last_ns, first_ns)])
    windows: dict[PhaseKind, tuple[Integers, Integers]] = {
        "start-up": (edges[:1], start[:1]),
        "warm-up": (start[:warm_up], reach[:warm_up]),
        "steady": (start[warm_up:], reach[warm_up:]),
        "between": (reach[:-1], start[1:]),
        "end": (reach[-1:], edges[1:]),
    }
    checkpoints = steps.timeline.of("checkpoint")
    spent: dict[PhaseKind, int] = dict.fromkeys(("start-up", "warm-up", "steady"), 0)
    spent |= {"evaluation": 0, "checkpoint": 0, "between": 0, "end": 0}
    for kind, (begin, end) in windows.items():
        low = begin.clip(*edges)
        high = np.maximum(low, end.clip(*edges))
        saved = covered_within(*checkpoints, low, high)
        # Inside of a step an evaluation is a part of that.
        outside = kind not in {"warm-up", "steady"}
        evaluated = covered_within(*steps.evaluation, low, high) if outside else 0 * saved
        evaluated = np.minimum(evaluated, high - low - saved)
        spent["checkpoint"] += int(saved.sum())
        spent["evaluation"] += int(evaluated.sum())
        spent[kind] += int((high - low - saved - evaluated).sum())
    return {kind: ns / 1e9 for kind, ns in spent.items() if ns}


def _lane(steps: Steps, first_ns: int, last_ns: int) -> dict[str, list[float]]:
    # In whole numbers: floats of times since 1970 are 256 ns apart.
    length = max(last_ns - first_ns, LANE_STRETCHES)
    edges = first_ns + np.arange(LANE_STRETCHES + 1) * length // LANE_STRETCHES
    knots = _outside(steps, edges) if len(steps) < FEW_STEPS else edges
    lane = {}
    for part in PARTS:
        begin, end = steps.timeline.of(part)
        spent = np.append(0, covered_within(begin, end, knots[:-1], knots[1:]).cumsum())
        until = np.interp(edges - first_ns, knots - first_ns, spent)
        shares = np.diff(until) / np.diff(edges)
        if part != "none" and shares.any():
            lane[str(part)] = np.round(shares, 3).tolist()
    return lane


def _outside(steps: Steps, edges: Integers) -> Integers:
    """Return where steps begin and end, and the edges that lie in none of them.

    A stretch that ends within a step then has the shares of the step: with what the step did just
    there, stretches as long as a step or shorter would show its order, or beats of the two lengths.
    """
    reach = np.maximum.accumulate(steps.end_ns)
    step = np.searchsorted(steps.start_ns, edges, "right") - 1
    free = edges[(step < 0) | (edges >= reach[np.maximum(step, 0)])]
    knots: Integers = np.unique(np.concatenate([edges[[0, -1]], free, steps.start_ns, reach]))
    return knots.clip(edges[0], edges[-1])


def _phases(
    steps: Steps, facts: StepFigures, first_ns: int, last_ns: int
) -> Iterator[tuple[int, int, PhaseKind, str]]:
    begin, end = int(steps.start_ns[0]), int(steps.end_ns[-1])
    if begin > first_ns:
        yield first_ns, begin, "start-up", ""
    warm_up, count = facts.warm_up, len(steps)
    calm = int(steps.start_ns[warm_up]) if warm_up < count else end
    if warm_up:
        yield begin, calm, "warm-up", counted(warm_up, "step")
    if warm_up < count:
        yield calm, end, "steady", counted(count - warm_up, "step")
    evaluation, checkpoints = steps.evaluation, steps.timeline.of("checkpoint")
    yield from ((*one, "evaluation", "") for one in _rows(*evaluation))
    yield from ((*one, "checkpoint", "") for one in _rows(*checkpoints))
    for number, one in _stalls(steps):
        yield *one, "stall", f"after step {number}"
    word, starts = "loop", np.flatnonzero(steps.first).tolist()
    if facts.split_by == "epoch" and facts.epoch_starts:
        word, starts = "epoch", facts.epoch_starts
    bounds = [*sorted({0, *starts}), count]
    if len(bounds) <= MOST_LOOPS:
        for number, (low, high) in enumerate(pairwise(bounds)):
            begins, ends = int(steps.start_ns[low]), int(steps.end_ns[high - 1])
            yield begins, ends, "loop", f"{word} {number}"
    if last_ns > end:
        yield end, last_ns, "end", ""


def _rows(begin: Integers, end: Integers) -> list[tuple[int, int]]:
    return list(zip(begin.tolist(), end.tolist(), strict=True))


def _stalls(steps: Steps) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield where between two steps nothing was annotated for long, with the step before."""
    least = max(STALL_MEDIANS * float(np.median(steps.time_ns)), STALL_NS)
    gaps = np.stack([steps.end_ns[:-1], steps.start_ns[1:]])
    line = steps.timeline
    for at in np.flatnonzero(gaps[1] - gaps[0] > least).tolist():
        low, high = gaps[:, at].tolist()
        here = slice(
            int(np.searchsorted(line.end_ns, low, "right")),
            int(np.searchsorted(line.start_ns, high)),
        )
        begin = np.append(np.clip(line.start_ns[here], low, high), high)
        end = np.append(low, np.clip(line.end_ns[here], low, high))
        for one in np.flatnonzero(begin - end > least).tolist():
            yield int(steps.number[at]), (int(end[one]), int(begin[one]))
