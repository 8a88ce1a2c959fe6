"""What an index says is taken only where it can be so."""

from __future__ import annotations

from typing import Any

import pytest

from dftrace_ai import _reader

EXACT = ("compute", "forward", 2, 30, 25, 10, 20, True, [10, 20])
BUCKETS = ("compute", "backward", 3, 60, 60, 10, 30, False, [10, 1, 9, 1, 9, 1])


def taken(*spans: Any, lines: int = 5, **more: Any) -> bool:
    totals = _reader.Totals(1, 1 << 22)
    return totals.add_known(lines, list(spans), more.get("others", []), more.get("tracks", []))


def test_figures_that_can_be_are_taken() -> None:
    assert taken(EXACT, BUCKETS, others=[("i", "instant", "now", 1)], lines=6)


@pytest.mark.parametrize(
    "change",
    [
        {2: 3},
        {2: 2**60},
        {2: -1},
        {3: 31},
        {4: 31},
        {5: 9},
        {6: 21},
        {5: -10, 8: [-10, 20]},
        {8: [10, 21]},
        {8: [2**63, 20]},
        {8: ["10", 20]},
        {7: False, 8: [10, 1, 8, 1]},
        {7: False, 8: [11, 1, 8, 1]},
        {7: False, 8: [10, 1, 2**40, 1]},
        {7: False, 8: [10, 1, 9, -1]},
    ],
    ids=str,
)
def test_what_cannot_be_is_not(change: dict[int, Any]) -> None:
    row = list(EXACT)
    for at, value in change.items():
        row[at] = value
    assert not taken(tuple(row))


@pytest.mark.parametrize("numbers", [[0, 0], [2, 1, 3, 1, 0], [1, 2, 1, 1, 0], [1, 2, 3, -1, 0]])
def test_tracks_that_cannot_be_are_not(numbers: list[int]) -> None:
    assert taken(EXACT, tracks=[(1, 1, 30, 10, [10, 10, 30, 20, 0])])
    assert not taken(EXACT, tracks=[(1, 1, 2, 1, numbers)])
    assert not taken(EXACT, lines=1)
