"""Statistics that a few odd steps cannot turn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import exp, lgamma, log, log1p, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part

__all__ = [
    "BatchSums",
    "Change",
    "Share",
    "Trend",
    "alike",
    "batch_medians",
    "binomial_tail",
    "change_of",
    "trend_of",
]

# Student's t, 97.5 %, by degrees of freedom.
T_975: Final = (
    *(np.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23),
    *(2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09),
)
MOST_BATCHES: Final = 20
STEPS_A_BATCH: Final = 5
NORMAL_975: Final = 1.96

# Smaller parts say nothing, and parts grow alike where the least growth is so much of the greatest.
LEAST_SHARE: Final = 0.08
LEAST_GROWTH: Final = 0.4


class Share(NamedTuple):
    """A part of a whole, with its 95 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class BatchSums:
    """What the parts of steps add up to, by batches of steps that follow each other.

    Those of several ranks merge into those of the run.
    """

    whole: Integers  # nanoseconds of the steps, by batch
    parts: dict[Part, Integers]  # nanoseconds of each part, by batch

    @classmethod
    def of(cls, parts: Mapping[Part, Integers], whole: Integers, used: Integers) -> BatchSums:
        """Add up steps, those of a mask."""
        whole = whole[used]
        count = len(whole)
        # Steps are not independent of their neighbours, but few of them are all there is.
        batches = count if count < 3 * STEPS_A_BATCH else count // STEPS_A_BATCH
        edges = np.linspace(0, count, min(MOST_BATCHES, batches) + 1).astype(int)[:-1]
        sums = {part: np.add.reduceat(values[used], edges) for part, values in parts.items()}
        return cls(np.add.reduceat(whole, edges), sums)

    @classmethod
    def merged(cls, several: Iterable[BatchSums]) -> BatchSums:
        """Return the sums of several ranks, of which at least one is given.

        The batches of ranks that have as many are taken together, for ranks are slow
        together.
        """
        by_length: dict[int, list[BatchSums]] = {}
        for sums in several:
            by_length.setdefault(len(sums.whole), []).append(sums)
        groups = list(by_length.values())
        parts = list(groups[0][0].parts)
        whole = [np.sum([one.whole for one in group], axis=0) for group in groups]
        return cls(
            np.concatenate(whole),
            {
                part: np.concatenate(
                    [np.sum([one.parts[part] for one in group], axis=0) for group in groups]
                )
                for part in parts
            },
        )

    def share(self, *parts: Part) -> Share:
        """Return the share of some parts together, with its interval by a jackknife."""
        part = np.sum([self.parts[name] for name in parts], axis=0).astype(float)
        whole = self.whole.astype(float)
        batches = len(whole)
        total = float(part.sum() / max(whole.sum(), 1.0))
        if batches < 3:
            return Share(total, 0.0, 1.0)
        left = (part.sum() - part) / np.maximum(whole.sum() - whole, 1.0)
        error = sqrt((batches - 1) / batches * float(((left - left.mean()) ** 2).sum()))
        reach = T_975[min(batches, MOST_BATCHES) - 1] * error
        return Share(total, max(0.0, total - reach), min(1.0, total + reach))


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
    """Return whether the parts that matter differ by about the same factor."""
    total = sum(after.values())
    grown = [
        before[part] / level - 1
        for part, level in after.items()
        if level > 0 and level >= LEAST_SHARE * total
    ]
    return len(grown) >= 2 and min(grown) >= LEAST_GROWTH * max(grown)
