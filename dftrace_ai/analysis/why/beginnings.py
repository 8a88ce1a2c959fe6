"""The beginnings of loops, and evaluations that nothing but the model's mode tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.why.statistics import binomial_tail

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Steps
    from dftrace_ai.analysis.steps.steady import Steady

__all__ = ["LEAST_LOOPS", "Beginnings", "beginnings_of", "first_steps", "untold_evaluations"]

# Of a model in evaluation mode, as `auto` names its forward passes.
EVAL_FORWARD: Final = ("compute", "forward.eval")

# Loops after the first of them; so many steps of a loop are looked at, and of it at most this part.
LEAST_LOOPS: Final = 2
MOST_FIRST_STEPS, MOST_OF_LOOP = 50, 0.5
# A slow first step takes so much of a usual one longer.
LEAST_LONGER: Final = 0.5
MOST_BY_CHANCE: Final = 1e-3


@dataclass(frozen=True, repr=False)
class Beginnings:
    """The first steps of loops, as far as they are slow in each of them.

    Attributes:
        begins: which steps are the first of their loops.
        steps: so many first steps of a loop are slow in what is no wait for data; 0 for none.
        waits: so many are in the wait for data; 0 for none.
        members: the slow steps of all loops that do not wait, as a mask.
    """

    begins: Integers
    steps: int
    waits: int
    members: Integers


def beginnings_of(steps: Steps, steady: Steady, share_of_loops: float) -> Beginnings:
    """Tell how many steps at the beginning of each loop are slow.

    Args:
        steps: of a rank.
        steady: which of them are steady.
        share_of_loops: in so many of the loops a step is slow that is told as such.
    """
    begins = np.flatnonzero(steps.first)
    waits = steps.time_of("wait", "data")
    body = steps.time_ns - waits
    length = _slow_first_steps(body, begins, steady, share_of_loops)
    members = first_steps(begins, length, len(steps))
    return Beginnings(
        begins,
        length,
        _slow_first_steps(waits, begins, steady, share_of_loops),
        members & (body > _bound(body, steady)),
    )


def _bound(values: Integers, steady: Steady) -> float:
    chosen = values[steady.mask]
    median = float(np.median(chosen))
    spread = 1.4826 * float(np.median(np.abs(chosen - median)))
    return median + max(4 * spread, LEAST_LONGER * median, 1.0)


def _slow_first_steps(
    values: Integers, begins: Integers, steady: Steady, share_of_loops: float
) -> int:
    later = begins[begins > 0]
    if len(later) < LEAST_LOOPS or not steady.mask.any():
        return 0
    ends = np.append(begins[1:], len(values))[begins > 0]
    slow = values > _bound(values, steady)
    most = int(min(MOST_FIRST_STEPS, max(1.0, MOST_OF_LOOP * float(np.median(ends - later)))))
    length = hits = chances = 0
    for offset in range(most):
        at = (later + offset)[later + offset < ends]
        if len(at) < max(LEAST_LOOPS, share_of_loops * len(later)):
            break
        if slow[at].mean() < share_of_loops:
            break
        length, hits, chances = offset + 1, hits + int(slow[at].sum()), chances + len(at)
    rest = steady.mask & ~first_steps(begins, length, len(values))
    # One more of each, so that what was never seen is not impossible.
    likely = (float(slow[rest].sum()) + 1) / (float(rest.sum()) + 2)
    by_chance = binomial_tail(hits, chances, likely) * most
    return length if length and by_chance < MOST_BY_CHANCE else 0


def first_steps(begins: Integers, length: int, count: int) -> Integers:
    """Return the mask of the first steps of loops.

    Args:
        begins: where each loop begins, in order.
        length: so many steps of each.
        count: of all steps.
    """
    mask = np.zeros(count, bool)
    ends = np.append(begins[1:], count)
    for offset in range(length):
        mask[(begins + offset)[begins + offset < ends]] = True
    return mask


def untold_evaluations(steps: Steps) -> tuple[Integers, Integers]:
    """Return the stretches between steps from the first to the last forward in evaluation mode.

    Args:
        steps: of a rank.
    """
    thread = steps.thread
    spans = thread.at(thread.called(*EVAL_FORWARD))
    step = np.searchsorted(steps.start_ns, spans.start_ns, side="right") - 1
    outside = spans.start_ns >= steps.end_ns[np.maximum(step, 0)]
    outside &= step >= 0
    spans, step = spans.at(outside), step[outside]
    if not len(spans):
        return spans.start_ns, spans.end_ns
    gaps, begins = np.unique(step, return_index=True)
    ends = np.maximum.reduceat(spans.end_ns, begins)
    # Where something learns as well it is a part of the training.
    learning = np.sort(thread.start_ns[thread.has("backward", "optimizer")])
    after = np.append(steps.start_ns[1:], np.iinfo(np.int64).max)[gaps]
    learns = np.searchsorted(learning, after) > np.searchsorted(learning, steps.end_ns[gaps])
    return spans.start_ns[begins][~learns], np.minimum(ends, after)[~learns]
