"""Rows of summaries that are neither of names nor of categories: of places, and of tensors."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TensorRow", "TreeRow"]


@dataclass(frozen=True)
class TreeRow:
    """The finished spans of one place in the tree; durations in microseconds.

    Attributes:
        path: category and name with a dot between of each span around them, from the outside
            in, and their own.
        cat: their category.
        name: their name.
        count: how many there are, of all ranks and threads; 0 where only spans inside of them
            were asked for.
        total_us: sum of their durations.
        self_us: the part of it that no spans take which lie inside of them.
        share: self_us, of wall_us; null without any, or where that is not known.
        wall_us: the wall time of the processes that have spans of this place, added up: of each
            from its first event to its last; null where it is not known.
        mean_us: mean of the durations; null without any.
        min_us: the shortest.
        p50_us: median.
        p95_us: 95th percentile.
        p99_us: 99th percentile.
        max_us: the longest.
    """

    path: tuple[str, ...]
    cat: str
    name: str
    count: int
    total_us: float
    self_us: float
    share: float | None
    wall_us: float | None
    mean_us: float | None
    min_us: float | None
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    max_us: float | None


@dataclass(frozen=True)
class TensorRow:
    """A statistic of a tensor, over all steps and ranks at which it was seen.

    Attributes:
        name: layer and tensor.
        statistic: which one.
        count: how often it was taken.
        nonfinite: how often it was no finite number.
        first: the first finite value; null where there is none.
        last: the last finite value.
        min: the least.
        max: the greatest.
        first_nonfinite_step: the step at which it was not finite for the first time, as its
            event has it; null where it was always.
    """

    name: str
    statistic: str
    count: int
    nonfinite: int
    first: float | None
    last: float | None
    min: float | None
    max: float | None
    first_nonfinite_step: int | None
