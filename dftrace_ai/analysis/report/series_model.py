"""Values in their order as a report shows them: counters over time, tensors over iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CounterChart", "CounterLine", "Envelope", "HeatMap", "NonFiniteMark", "TensorFigures"]


@dataclass(frozen=True)
class Envelope:
    """Values in their order, several of which may be put together; none is averaged away.

    Attributes:
        first: where the first of each group is.
        last: where its last one is.
        low: the least finite value of each group; null where none is finite.
        middle: the median of these.
        high: the greatest.
        non_finite: how many of each group are NaN or infinite.
    """

    first: list[float]
    last: list[float]
    low: list[float | None]
    middle: list[float | None]
    high: list[float | None]
    non_finite: list[int]


@dataclass(frozen=True)
class CounterLine:
    """A number over the time of a process, in seconds since the first event."""

    process: str
    samples: int
    values: Envelope


@dataclass(frozen=True)
class CounterChart:
    """One number of one counter.

    Attributes:
        counter: name of the counter.
        key: name of the number.
        lines: of processes.
        lines_left_out: processes whose lines are not shown.
    """

    counter: str
    key: str
    lines: list[CounterLine]
    lines_left_out: int


@dataclass(frozen=True)
class HeatMap:
    """A statistic of a kind of tensor: a row for each layer, a column for one or more iterations.

    Where several values come into one cell (iterations, ranks) it has the one that is farthest
    from zero, and before all others one that is not finite.

    Attributes:
        statistic: its name.
        tensor: which tensor of the layers.
        layers: the rows.
        first: first iteration of each column.
        last: its last iteration.
        values: by row and column; null where there is nothing, texts for NaN and infinities.
        layers_left_out: layers that are not shown.
    """

    statistic: str
    tensor: str
    layers: list[str]
    first: list[int]
    last: list[int]
    values: list[list[float | Literal["NaN", "Infinity", "-Infinity"] | None]]
    layers_left_out: int


@dataclass(frozen=True)
class NonFiniteMark:
    """A moment at which the values of a tensor stopped being finite.

    Attributes:
        process: whose.
        layer: name of the layer.
        tensor: which tensor of it.
        iteration: null where the mark does not say it.
        n_nan: how many of its elements are NaN.
        n_inf: how many are infinite.
        at: what `dftrace view --at` takes.
    """

    process: str
    layer: str
    tensor: str
    iteration: int | None
    n_nan: int | None
    n_inf: int | None
    at: str


@dataclass(frozen=True)
class TensorFigures:
    """What tensor inspection wrote.

    Attributes:
        layers: how many.
        statistics: names of all statistics.
        non_finite: values that are NaN or infinite, of all statistics together.
        first_non_finite: the layer and tensor, with iteration and statistic, that was first.
        maps: heat maps.
        maps_left_out: pairs of statistic and tensor that are not shown.
        stopped: when tensors stopped being finite, in the order of time.
        stopped_left_out: more of these.
    """

    layers: int
    statistics: list[str]
    non_finite: int
    first_non_finite: str
    maps: list[HeatMap]
    maps_left_out: int
    stopped: list[NonFiniteMark]
    stopped_left_out: int
