"""What was made slower in a run is named, with its size, and nothing else is; alike runs are alike."""

from __future__ import annotations

import pytest
from analysis.diff.made_pairs import ALIKE, PLANTED, TOLD, compared, dotted, told


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
