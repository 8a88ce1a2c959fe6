"""Steps in no order, logged by two ranks, and some of them again after a restart."""

from __future__ import annotations

import random

COUNT, AGAIN, TWICE = 1000, 20, 5


def of(rank: int) -> list[tuple[int, float]]:
    """Steps of a rank, shuffled, with their values; then some of them with other values."""
    steps = list(range(COUNT))
    random.Random(rank).shuffle(steps)
    twice = [(step, 5000.0 + step) for step in range(TWICE)]
    return [(step, step + rank / 4) for step in steps] + twice


def again() -> list[tuple[int, float]]:
    """What the first rank logs after its restart from half way."""
    return [(step, -1.0 - step) for step in range(COUNT // 2, COUNT // 2 + AGAIN)]


def all_values(rank: int) -> list[list[float]]:
    """Every step with every value that was logged for it, by step and then as it was logged."""
    logged = of(rank) + (again() if rank == 0 else [])
    return [list(pair) for pair in sorted(logged, key=lambda pair: pair[0])]


def first_values(rank: int) -> list[list[float]]:
    """Every step with the value that was logged first for it, in the run before the restart."""
    return sorted([float(step), step + rank / 4] for step in range(COUNT))


def later_values(rank: int) -> list[list[float]]:
    """Every step with the value that was logged last for it."""
    return [list(pair) for pair in dict(all_values(rank)).items()]
