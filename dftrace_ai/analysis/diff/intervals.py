"""Figures of steps, and between which bounds the difference of two runs lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from dftrace_ai.analysis.why.statistics import MOST_BATCHES, STEPS_A_BATCH

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers

__all__ = ["FIGURES", "Difference", "Figure", "difference", "figure_of", "steps_needed"]

Figure = Literal["p50", "p90", "p95", "p99", "mean"]

FIGURES: Final[dict[Figure, float | None]] = {
    "p50": 0.5,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "mean": None,
}
"""Figures of what steps took, with the share of steps that is below."""

# So many steps have to lie beyond a percentile.
BEYOND: Final = 5
FEWEST: Final = 20

# Correlation of batches with the next.
MOST_ALIKE: Final = 0.8

DRAWS: Final = 300
SEED: Final = 20_240_229

# Student's t, 99.95 %, by degrees of freedom: of a thousand comparisons one is wrong by chance, and
# a run has hundreds of rows.
T_9995: Final = {
    1: 636.6,
    2: 31.60,
    3: 12.92,
    4: 8.610,
    5: 6.869,
    6: 5.959,
    7: 5.408,
    8: 5.041,
    9: 4.781,
    10: 4.587,
    12: 4.318,
    14: 4.140,
    16: 4.015,
    19: 3.883,
    24: 3.745,
    30: 3.646,
    38: 3.566,
}


class Difference(NamedTuple):
    """A figure of two runs, and between which bounds what is added lies, 99.9 times of 100."""

    before: float
    after: float
    low: float
    high: float

    @property
    def added(self) -> float:
        """What the second run has more than the first."""
        return self.after - self.before


def steps_needed(figure: Figure) -> int:
    """Return of how many steps a figure may be told."""
    share = FIGURES[figure]
    return FEWEST if share is None else max(FEWEST, round(BEYOND / (1 - share)))


def figure_of(values: Integers, figure: Figure) -> float:
    """Return a figure of values, of which there is at least one."""
    share = FIGURES[figure]
    return float(np.mean(values) if share is None else np.quantile(values, share))


def difference(before: Integers, after: Integers, figure: Figure) -> Difference:
    """Return by how much a figure differs, with its interval by a bootstrap.

    Steps are drawn in batches of neighbours, for these are not independent of each other.
    """
    first, second = _error(before, figure), _error(after, figure)
    error = sqrt(first.error**2 + second.error**2)
    spread = first.error**4 / (first.batches - 1) + second.error**4 / (second.batches - 1)
    degrees = int(error**4 / spread) if spread else MOST_BATCHES
    reach = _t_9995(degrees) * error
    first_is, second_is = figure_of(before, figure), figure_of(after, figure)
    added = second_is - first_is
    # No run saves more than all of it.
    return Difference(first_is, second_is, max(added - reach, -first_is), added + reach)


def _t_9995(degrees: int) -> float:
    return T_9995[max(known for known in T_9995 if known <= max(degrees, 1))]


@dataclass(frozen=True)
class _Error:
    """The standard error of a figure, and of how many batches it is."""

    error: float
    batches: int


def _error(values: Integers, figure: Figure) -> _Error:
    # Steps are not independent of their neighbours, but few of them are all there is.
    few = len(values) < 3 * STEPS_A_BATCH
    batches = len(values) if few else min(MOST_BATCHES, len(values) // STEPS_A_BATCH)
    size = len(values) // batches
    # What is left over is spread over the run, so that no end of it is left out.
    rows = np.linspace(0, len(values) - 1, batches * size).round().astype(np.int64)
    by_batch = values[rows].reshape(batches, size)
    share = FIGURES[figure]
    if share is None:
        figures = by_batch.mean(axis=1)[_draws(batches)].mean(axis=1)
    else:
        figures = _quantiles(by_batch, share)
    # Drawn from few batches, they differ less than runs would; what drifts, differs more.
    error = float(figures.std()) * sqrt(batches / (batches - 1))
    return _Error(error * _drift(by_batch.mean(axis=1)), batches)


def _quantiles(by_batch: Integers, share: float) -> Integers:
    """Return a quantile of each draw of batches, as `numpy.quantile` of all that is drawn tells it.

    The values are sorted once; a draw only says how often each counts. So what is drawn is never
    laid out, which would take 2,400 bytes for each step.
    """
    batches, size = by_batch.shape
    order = np.argsort(by_batch, axis=None, kind="stable")
    values, batch_of = by_batch.ravel()[order], order // size
    # In stretches of the sorted values: how many of each batch lie in and below each.
    long = max(int(sqrt(len(values))), 1)
    stretches = -(-len(values) // long)
    at = batch_of * stretches + np.arange(len(values)) // long
    in_each = np.bincount(at, minlength=batches * stretches).reshape(batches, stretches)
    times = np.stack([np.bincount(draw, minlength=batches) for draw in _draws(batches)])
    below = times @ np.cumsum(in_each, axis=1)
    place = share * (batches * size - 1)
    found = []
    for rank in (int(place), min(int(place) + 1, batches * size - 1)):
        stretch = (below <= rank).sum(axis=1)
        before = np.where(stretch > 0, below[np.arange(DRAWS), stretch - 1], 0)
        # The last stretch may be shorter: what is beyond it counts for nothing.
        inside = stretch[:, None] * long + np.arange(long)
        there = np.minimum(inside, len(values) - 1)
        counted = np.where(
            inside < len(values), times[np.arange(DRAWS)[:, None], batch_of[there]], 0
        )
        step = (before[:, None] + np.cumsum(counted, axis=1) <= rank).sum(axis=1)
        found.append(values[there[np.arange(DRAWS), step]])
    quantiles: Integers = found[0] + (found[1] - found[0]) * (place - int(place))
    return quantiles


def _drift(batches: Integers) -> float:
    """Return how much more the error is where batches are like their neighbours."""
    apart = batches - batches.mean()
    spread = float((apart**2).sum())
    if not spread:
        return 1.0
    alike = min(max(float((apart[1:] * apart[:-1]).sum()) / spread, 0.0), MOST_ALIKE)
    return sqrt((1 + alike) / (1 - alike))


@lru_cache
def _draws(batches: int) -> Integers:
    return np.random.default_rng(SEED).integers(0, batches, (DRAWS, batches))
