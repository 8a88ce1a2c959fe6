"""Intervals of differences: those of a bootstrap whose draws are laid out, without laying them out."""

from __future__ import annotations

import tracemalloc
from math import sqrt

import numpy as np
import pytest

from dftrace_ai.analysis.why.statistics import DRAWS, SEED, Figure, difference


def laid_out(values: np.ndarray, share: float | None, batches: int) -> float:
    """The spread of a figure over draws of batches that are written down one by one."""
    by_batch = values.reshape(batches, -1)
    draws = np.random.default_rng(SEED).integers(0, batches, (DRAWS, batches))
    drawn = [np.concatenate([by_batch[batch] for batch in draw]) for draw in draws]
    figures = [d.mean() if share is None else np.quantile(d, share) for d in drawn]
    apart = by_batch.mean(axis=1) - by_batch.mean()
    spread = float((apart**2).sum())
    alike = float((apart[1:] * apart[:-1]).sum()) / spread if spread else 0.0
    alike = min(max(alike, 0.0), 0.8)
    return float(np.std(figures)) * sqrt(batches / (batches - 1)) * sqrt((1 + alike) / (1 - alike))


@pytest.mark.parametrize(("figure", "share"), [("p50", 0.5), ("p95", 0.95), ("mean", None)])
@pytest.mark.parametrize("kind", ["smooth", "rounded", "in two heaps", "rising"])
def test_bounds_are_those_of_draws_that_are_laid_out(
    figure: Figure, share: float | None, kind: str
) -> None:
    rng = np.random.default_rng(7)
    values = 10 + rng.exponential(size=2_000)
    if kind == "rounded":
        values = np.round(values)
    elif kind == "in two heaps":
        values = values + 20 * (rng.random(2_000) < 0.5)
    elif kind == "rising":
        values = np.sort(values)
    still = np.full(2_000, 5.0)
    found = difference(values, still, figure)
    reach = found.high - found.added
    error = laid_out(values, share, 20)
    assert reach == pytest.approx(3.883 * error, rel=1e-9)
    assert found.added == pytest.approx(
        5 - (values.mean() if share is None else np.quantile(values, share))
    )


def test_what_a_comparison_takes_for_each_step() -> None:
    values = np.random.default_rng(7).exponential(size=200_000)
    difference(values[:200], values[:200], "p50")
    tracemalloc.start()
    difference(values, values, "p50")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / len(values) < 100
