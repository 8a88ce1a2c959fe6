"""The ring that brings records to the host: order, growth, and the one place where it waits."""

from __future__ import annotations

import pytest
import torch
from awkward_tensors import normal
from late_rings import LateCopies
from torch import Tensor

from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.record import Record
from dftrace_ai.inspect.numerics.ring import Ring

CPU = torch.device("cpu")


def means(records: list[Record]) -> list[float]:
    return [record[1] for record in records]


def numbers(value: float) -> Tensor:
    return torch.full((3,), value)


def test_records_come_with_their_generation_in_the_order_they_were_added() -> None:
    ring: Ring[str] = Ring(CPU)
    assert [ring.add(numbers(value)) for value in (1.0, 2.0)] == [0, 1]
    assert ring.landed() == []
    ring.end_generation("first")
    assert ring.add(numbers(3.0)) == 0
    ring.end_generation("second")
    landed = ring.landed()
    assert [one.tag for one in landed] == ["first", "second"]
    assert [means(one.records) for one in landed] == [[1.0, 2.0], [3.0]]
    assert ring.landed() == []
    assert ring.drain() == []


def test_a_record_in_the_ring_is_that_of_the_tensor() -> None:
    ring: Ring[int] = Ring(CPU)
    x = normal(10_000).reshape(100, 100).t()
    ring.add(x, scale=3.0, format=Format.E4M3)
    ring.add(x.requires_grad_(), scale=torch.tensor(3.0), format=Format.E4M3)
    ring.end_generation(0)
    wanted = collect(x, scale=3.0, format=Format.E4M3)
    assert wanted is not None
    for record in ring.drain()[0].records:
        assert record[4:] == wanted[4:]
        assert record[:4] == pytest.approx(wanted[:4], rel=1e-6, abs=1e-8)


def test_more_records_than_expected_get_more_memory() -> None:
    ring: Ring[int] = Ring(CPU, slots=4)
    for step in range(3):
        count = 11 - 4 * step
        for place in range(count):
            assert ring.add(numbers(place)) == place
        ring.end_generation(step)
        assert [means(one.records) for one in ring.landed()] == [[*map(float, range(count))]]


def test_an_empty_generation_does_not_travel() -> None:
    ring: Ring[int] = Ring(CPU)
    for step in range(20):
        ring.end_generation(step)
    assert ring.drain() == []


def test_nothing_is_waited_for_until_the_ring_is_full() -> None:
    copies, stalls = LateCopies(1), []
    ring: Ring[int] = Ring(CPU, generations=3, copy=copies, on_stall=stalls.append)
    for step in range(2):
        ring.add(numbers(step))
        ring.end_generation(step)
        assert ring.landed() == []
    assert stalls == []
    ring.add(numbers(2))
    ring.end_generation(2)
    assert len(stalls) == 1
    assert stalls[0] >= 0
    assert copies.waits == 1
    ring.add(numbers(3))
    assert [(one.tag, means(one.records)) for one in ring.landed()] == [(0, [0.0])]
    copies.under_way[2].comes_at = 0
    assert ring.landed() == []  # the one before it is still under way
    copies.under_way[1].comes_at = 0
    assert [(one.tag, means(one.records)) for one in ring.landed()] == [(1, [1.0]), (2, [2.0])]
    ring.end_generation(3)
    assert [(one.tag, means(one.records)) for one in ring.drain()] == [(3, [3.0])]
    assert len(stalls) == 1


def test_a_full_ring_whose_oldest_records_have_come_is_not_waited_for() -> None:
    copies, stalls = LateCopies(1), []
    ring: Ring[int] = Ring(CPU, generations=2, copy=copies, on_stall=stalls.append)
    for step in range(3):
        ring.add(numbers(step))
        ring.end_generation(step)
        copies.now += 1
    assert stalls == []
    assert [(one.tag, means(one.records)) for one in ring.landed()] == [
        *((0, [0.0]), (1, [1.0]), (2, [2.0])),
    ]


def test_a_row_that_was_made_elsewhere_comes_as_it_is() -> None:
    ring: Ring[int] = Ring(CPU, slots=1)
    row = torch.arange(17, dtype=torch.float64)
    assert ring.add(numbers(1.0)) == 0
    assert ring.add_row(row) == 1
    assert ring.row(1).tolist() == row.tolist()
    ring.end_generation(0)
    assert ring.drain()[0].records[1] == tuple(range(17))


def test_rows_under_way_are_not_written_over() -> None:
    copies = LateCopies(1)
    ring: Ring[int] = Ring(CPU, slots=2, generations=3, copy=copies)
    found = []
    for step in range(12):
        for place in range(3):
            ring.add(numbers(10 * step + place))
        ring.end_generation(step)
        found += ring.landed()
    found += ring.drain()
    assert [one.tag for one in found] == list(range(12))
    for one in found:
        assert means(one.records) == [10.0 * one.tag + place for place in range(3)]


def test_a_tensor_whose_record_fails_takes_no_place() -> None:
    ring: Ring[int] = Ring(CPU)
    ring.add(numbers(1.0))
    with pytest.raises(RuntimeError):
        ring.add(torch.empty(0))
    assert ring.add(numbers(2.0)) == 1
    ring.end_generation(0)
    assert means(ring.drain()[0].records) == [1.0, 2.0]
