"""Statistics that a few odd steps cannot turn, and bounds of what two runs differ by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import exp, lgamma, log, log1p, sqrt
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part

# Student's t, 97.5 %, by degrees of freedom.
T_975: Final = (
    *(np.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23),
    *(2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09),
)
MOST_BATCHES: Final = 20
STEPS_A_BATCH: Final = 5
NORMAL_975: Final = 1.96

# Of sorted values so many stretches are counted at once.
STRETCHES_AT_ONCE: Final = 64

# Smaller parts say nothing, and parts grow alike where the least growth is so much of the greatest.
LEAST_SHARE: Final = 0.08
LEAST_GROWTH: Final = 0.4

# Fewer ranks do not say which of them is odd; of more it is so many scaled median deviations, and
# so much of what is usual, away from that.
FEWEST_RANKS: Final = 3
ODD_SCALES: Final = 4.0
ODD_SHARE: Final = 0.1


class Share(NamedTuple):
    """A part of a whole, with its 95 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class BatchSums:
    """What the parts of steps add up to, by batches of steps that follow each other."""

    whole: Integers  # nanoseconds of the steps, by batch
    parts: dict[Part, Integers]  # nanoseconds of each part, by batch

    @classmethod
    def of(cls, parts: Mapping[Part, Integers], whole: Integers, used: Integers) -> BatchSums:
        """Add up steps, those of a mask."""
        starts = _batches(int(used.sum()))
        sums = {part: np.add.reduceat(values[used], starts) for part, values in parts.items()}
        return cls(np.add.reduceat(whole[used], starts), sums)

    def share(self, *parts: Part) -> Share:
        """Return the share of some parts together, with its interval by a jackknife."""
        return _share(np.sum([self.parts[name] for name in parts], axis=0), self.whole)


def share_of(part: Integers, whole: Integers) -> Share:
    """Return the share of a part of steps, of which there is at least one, as `BatchSums.share`."""
    starts = _batches(len(whole))
    return _share(np.add.reduceat(part, starts), np.add.reduceat(whole, starts))


def _batches(steps: int) -> Integers:
    """Return where batches of steps that follow each other start."""
    # Steps are not independent of their neighbours, but few of them are all there is.
    batches = steps if steps < 3 * STEPS_A_BATCH else steps // STEPS_A_BATCH
    return np.linspace(0, steps, min(MOST_BATCHES, batches) + 1).astype(int)[:-1]


def _share(parts: Integers, wholes: Integers) -> Share:
    """Return the share of what batches add up to, with its interval by a jackknife."""
    part, whole = parts.astype(float), wholes.astype(float)
    batches = len(whole)
    total = float(part.sum() / max(whole.sum(), 1.0))
    if batches < 3:
        return Share(total, 0.0, 1.0)
    left = (part.sum() - part) / np.maximum(whole.sum() - whole, 1.0)
    error = sqrt((batches - 1) / batches * float(((left - left.mean()) ** 2).sum()))
    reach = T_975[min(batches, MOST_BATCHES) - 1] * error
    return Share(total, max(0.0, total - reach), min(1.0, total + reach))


def odd_ranks(times: Integers) -> Integers:
    """Return whose time is far from that of most ranks, as a mask; who has none (NaN) is not odd.

    `dftrace why`, the report and the page over all runs name the same ones by it.
    """
    known = ~np.isnan(times)
    if known.sum() < FEWEST_RANKS:
        return np.zeros(len(times), bool)
    usual = float(np.median(times[known]))
    away = np.abs(np.where(known, times, usual) - usual)
    # Scaled so that it is the standard deviation of what is spread normally.
    scale = 1.4826 * float(np.median(away[known]))
    return (away > ODD_SCALES * scale) & (away > ODD_SHARE * usual)


class Trend(NamedTuple):
    """A line through points by Theil and Sen, with Sen's 95 % interval."""

    slope: float
    low: float
    high: float
    tau: float
    """Kendall's: 1 where every later point is higher."""


def trend_of(y: Integers, x: Integers | None = None) -> Trend:
    """Return the line that a few odd points do not turn."""
    count = len(y)
    at = np.arange(count, dtype=float) if x is None else np.asarray(x, float)
    first, second = np.triu_indices(count, 1)
    rise = np.asarray(y, float)[second] - np.asarray(y, float)[first]
    slopes = np.sort(rise / np.maximum(at[second] - at[first], 1e-12))
    half = NORMAL_975 * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = int(max(0, (len(slopes) - half) / 2))
    high = int(min(len(slopes) - 1, (len(slopes) + half) / 2))
    tau = float(np.sign(rise).mean())
    return Trend(float(np.median(slopes)), float(slopes[low]), float(slopes[high]), tau)


class Change(NamedTuple):
    """Where two levels fit points best, and how well they and a line do."""

    at: int
    before: float
    after: float
    misfit: float
    misfit_of_line: float


def change_of(y: Integers) -> Change:
    """Return the two medians that fit points best, by the least absolute residual."""
    count = len(y)
    edge = max(3, count // 10)
    best, at = np.inf, edge
    for cut in range(edge, count - edge + 1):
        misfit = _misfit(y[:cut]) + _misfit(y[cut:])
        if misfit < best:
            best, at = misfit, cut
    flat = y - trend_of(y).slope * np.arange(count)
    return Change(at, float(np.median(y[:at])), float(np.median(y[at:])), best, _misfit(flat))


def _misfit(y: Integers) -> float:
    return float(np.abs(y - np.median(y)).sum())


def batch_medians(y: Integers, batches: int) -> Integers:
    """Return the medians of so many batches of values that follow each other."""
    edges = np.linspace(0, len(y), batches + 1).astype(int)
    return np.array([np.median(y[a:b]) for a, b in pairwise(edges)])


def binomial_tail(hits: int, chances: int, likely: float) -> float:
    """Return how likely at least so many hits are by chance."""
    if likely <= 0:
        return 1.0 if hits <= 0 else 0.0
    if likely >= 1:
        return 1.0
    yes, no = log(likely), log1p(-likely)
    total = lgamma(chances + 1)
    return sum(
        exp(total - lgamma(k + 1) - lgamma(chances - k + 1) + k * yes + (chances - k) * no)
        for k in range(hits, chances + 1)
    )


def alike(before: Mapping[Part, float], after: Mapping[Part, float]) -> bool:
    """Return whether the parts that matter, of either, differ by about the same factor."""
    least, least_before = (LEAST_SHARE * sum(parts.values()) for parts in (after, before))
    grown = [
        before[part] / max(level, 1.0) - 1
        for part, level in after.items()
        if level > least or before[part] > least_before
    ]
    return len(grown) >= 2 and min(grown) >= LEAST_GROWTH * max(grown)


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


MOST_BEYOND: Final = 0.0005
# Medians that an odd step takes.
LONG: Final = 3.0


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

    Steps are drawn in batches of neighbours, for these are not independent of each other. One and
    the same steps differ by nothing. Where some steps are long, a mean is bounded by how batches of
    both differ in pairs, too.
    """
    if np.array_equal(before, after):
        same = figure_of(before, figure)
        return Difference(same, same, 0.0, 0.0)
    first, second = _error(before, figure), _error(after, figure)
    first_is, second_is = figure_of(before, figure), figure_of(after, figure)
    added = second_is - first_is
    error = sqrt(first.error**2 + second.error**2)
    spread = first.error**4 / (first.batches - 1) + second.error**4 / (second.batches - 1)
    degrees = int(error**4 / spread) if spread else MOST_BATCHES
    reach = _t_9995(degrees) * error
    # No figure of a run is below what its quickest step takes.
    quickest = min(float(after.min()) - first_is, 0.0)
    low, high = max(added - reach, quickest), added + reach
    # Of long steps that come now and then no t interval says how sure they are.
    long = figure == "mean" and any(one.max() > LONG * np.median(one) for one in (before, after))
    pairs = _by_pairs(first.means, second.means) if long else None
    if pairs and pairs[0] <= added <= pairs[1]:
        low, high = max(low, pairs[0]), min(high, pairs[1])
    return Difference(first_is, second_is, low, high)


def _by_pairs(before: Integers, after: Integers) -> tuple[float, float] | None:
    """Return between which differences of batches in pairs that of two runs lies.

    These are Hodges' and Lehmann's bounds, 99.9 %, from the ranks of Wilcoxon, Mann and Whitney;
    None where there are too few batches, or where these are like their neighbours.
    """
    beyond = _ranks_beyond(len(before), len(after))
    if beyond < 0 or any(_likeness(one) > 1 / sqrt(len(one)) for one in (before, after)):
        return None
    pairs = np.sort(np.subtract.outer(after, before), axis=None)
    return float(pairs[beyond]), float(pairs[-1 - beyond])


@lru_cache
def _ranks_beyond(before: int, after: int) -> int:
    """Return how many pairs at each end of all may be left out; -1 where not even none may."""
    # Of how many orders of all batches so many pairs are the other way round.
    orders = np.zeros(before * after + 1)
    orders[0] = 1
    for one in range(1, before + 1):
        for at in range(len(orders) - 1, after + one - 1, -1):
            orders[at] -= orders[at - after - one]
        for at in range(one, len(orders)):
            orders[at] += orders[at - one]
    return int(np.searchsorted(np.cumsum(orders), MOST_BEYOND * orders.sum(), side="right")) - 1


def _t_9995(degrees: int) -> float:
    return T_9995[max(known for known in T_9995 if known <= max(degrees, 1))]


@dataclass(frozen=True)
class _Error:
    """The standard error of a figure, and of which batches it is: what steps of each take."""

    error: float
    means: Integers

    @property
    def batches(self) -> int:
        return len(self.means)


def _error(values: Integers, figure: Figure) -> _Error:
    # Steps are not independent of their neighbours, but few of them are all there is.
    few = len(values) < 3 * STEPS_A_BATCH
    batches = len(values) if few else min(MOST_BATCHES, len(values) // STEPS_A_BATCH)
    size = len(values) // batches
    # What is left over is spread over the run, so that no end of it is left out.
    rows = np.linspace(0, len(values) - 1, batches * size).round().astype(np.int64)
    by_batch = values[rows].reshape(batches, size)
    del rows
    share = FIGURES[figure]
    if share is None:
        figures = by_batch.mean(axis=1)[_draws(batches)].mean(axis=1)
    else:
        figures = _quantiles(by_batch, share)
    # Drawn from few batches, they differ less than runs would; what drifts, differs more.
    error = float(figures.std()) * sqrt(batches / (batches - 1))
    edges = np.linspace(0, len(values), batches + 1).astype(np.int64)
    means = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    return _Error(error * _drift(by_batch.mean(axis=1)), means)


def _quantiles(by_batch: Integers, share: float) -> Integers:
    """Return a quantile of each draw of batches, as `numpy.quantile` of all that is drawn tells it.

    The values are sorted once; a draw only says how often each counts. So what is drawn is never
    laid out, which would take 2,400 bytes for each step.
    """
    batches, size = by_batch.shape
    order = np.argsort(by_batch, axis=None, kind="stable")
    values = by_batch.ravel()[order]
    order //= size
    batch_of = order.astype(np.int32)
    del order
    # In stretches of the sorted values: how many of each batch lie in and below each.
    long = max(int(sqrt(len(values))), 1)
    stretches = -(-len(values) // long)
    in_each = np.zeros((batches, stretches), np.int64)
    for first in range(0, stretches, STRETCHES_AT_ONCE):
        some = batch_of[first * long : (first + STRETCHES_AT_ONCE) * long]
        np.add.at(in_each, (some, first + np.arange(len(some)) // long), 1)
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
    alike = _likeness(batches)
    return sqrt((1 + alike) / (1 - alike))


def _likeness(batches: Integers) -> float:
    """Return the correlation of batches with their neighbours, of what may be by chance none."""
    apart = batches - batches.mean()
    spread = float((apart**2).sum())
    return (
        min(max(float((apart[1:] * apart[:-1]).sum()) / spread, 0.0), MOST_ALIKE) if spread else 0.0
    )


@lru_cache
def _draws(batches: int) -> Integers:
    return np.random.default_rng(SEED).integers(0, batches, (DRAWS, batches))
