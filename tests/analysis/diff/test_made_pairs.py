"""What was made slower in a run is named, with its size, and nothing else is; what an interval is."""

from __future__ import annotations

import tracemalloc
from math import sqrt

import numpy as np
import pytest
from analysis.diff.made_pairs import ALIKE, PLANTED, TOLD, compared, dotted, told

from dftrace_ai.analysis.robust_statistics import DRAWS, SEED, Figure, difference


@pytest.mark.sampled(0.4)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", PLANTED)
def test_what_became_slower_is_named_with_its_size(name: str, seed: int) -> None:
    found = compared(name, seed)
    wanted = PLANTED[name].factors
    kinds = {name: "new" if factor is None else "slower" for name, factor in wanted.items()}
    assert {row.name: row.kind for row in told(found)} == kinds
    changes = {dotted(row): row.change for row in found.names}
    for row, factor in wanted.items():
        change = changes[row]
        if factor is None:
            assert change.before_ns == 0 < change.after_ns
            continue
        assert change.low_ns is not None
        assert change.high_ns is not None
        # The interval holds what was planted, and the figure is near it.
        low, high = (1 + ns / change.before_ns for ns in (change.low_ns, change.high_ns))
        if row != "dataloader.fetch.iter":  # what follows from the items
            assert low - 0.02 <= factor <= high + 0.02
            assert change.after_ns / change.before_ns == pytest.approx(factor, rel=0.1)
    # Its place in the tree is told, and its category has not become faster.
    places = {row.path[-1]: row.change.kind for row in found.tree if row.change.kind in TOLD}
    assert places == kinds
    assert not [row for row in found.categories if row.change.kind in {"faster", "gone"}]
    # The other way round it became faster.
    back = {row.name: row.kind for row in told(compared(name, seed, backwards=True))}
    opposite = {"slower": "faster", "new": "gone"}
    assert back == {name: opposite[kind] for name, kind in kinds.items()}


@pytest.mark.sampled(0.2)
@pytest.mark.parametrize("seed", [11, 12, 13, 14, 15])
@pytest.mark.parametrize("name", ALIKE)
def test_of_runs_that_differ_by_chance_nothing_is_said(name: str, seed: int) -> None:
    found = compared(name, seed)
    assert found.verdict == "none"
    rows = (*found.categories, *found.names, *found.tree)
    assert [row for row in rows if row.change.kind in TOLD] == []
    assert len(found.names) >= 6


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
