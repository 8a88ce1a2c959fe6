"""The list of a tensor's statistics: the name and the formula of each. A new one goes here."""

from __future__ import annotations

import math
from array import array
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.inspect.errors import InspectValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dftrace_ai.inspect.numerics.record import Record

__all__ = [
    "FP8_PREFIXES",
    "FP8_STATS",
    "PLAIN_FP8_STATS",
    "TENSOR_STATS",
    "final_values",
]


class _Formula(NamedTuple):
    """How a statistic is made of a record. Where there is a NaN among the elements, it is NaN.

    Attributes:
        of_finite: what it is of elements that are all finite.
        with_infinities: what torch gives for it where some are infinite.
    """

    of_finite: Callable[[Record], float]
    with_infinities: Callable[[Record], float]


def _infinity(record: Record) -> float:
    return math.inf


def _nan(record: Record) -> float:
    return math.nan


def _infinite_mean(record: Record) -> float:
    if record.min > -math.inf:
        return math.inf
    return math.nan if record.max == math.inf else -math.inf


def _std(record: Record) -> float:
    n = record.n_finite
    return math.sqrt(record.m2 / (n - 1)) if n > 1 else math.nan


def _l2_norm(record: Record) -> float:
    mean = record.mean
    return math.sqrt(record.m2 + record.n_finite * mean * mean)


def _dynamic_range(record: Record) -> float:
    smallest, largest = record.amin_nonzero, record.amax
    if math.isnan(smallest):
        return math.nan
    return math.log2(largest) - math.log2(smallest) if largest else 0.0


def _infinite_range(record: Record) -> float:
    return math.nan if math.isinf(record.amin_nonzero) else math.inf


_min, _max, _amax = attrgetter("min"), attrgetter("max"), attrgetter("amax")

# What `LogTensorStats` accepts. Each has a formula for devices, too, in `statistics_on_device`.
_OF_TENSORS = {
    "min": _Formula(_min, _min),
    "max": _Formula(_max, _max),
    "mean": _Formula(attrgetter("mean"), _infinite_mean),
    "std": _Formula(_std, _nan),
    "l1_norm": _Formula(attrgetter("absolute_sum"), _infinity),
    "l2_norm": _Formula(_l2_norm, _infinity),
    "cur_amax": _Formula(_amax, _amax),
    "dynamic_range": _Formula(_dynamic_range, _infinite_range),
}

# What `LogFp8TensorStats` accepts: what an 8-bit format does to a tensor, whatever its elements.
_OF_FP8: dict[str, Callable[[Record], float]] = {
    "underflows%": lambda record: 100 * record.n_under / record.n_total,
    "overflows%": lambda record: 100 * record.n_over / record.n_total,
    "mse": lambda record: record.square_error / record.n_total,
    "scale_inv_min": lambda record: 1 / record.scale_max,
    "scale_inv_max": lambda record: 1 / record.scale_min,
}

TENSOR_STATS = tuple(_OF_TENSORS)
"""The statistics of a tensor's own elements, by their canonical names."""

PLAIN_FP8_STATS = tuple(_OF_FP8)
"""The statistics of an 8-bit format, by the scale that is used."""

FP8_PREFIXES = ("fp8_current_scaling_", "fp8_delayed_scaling_")
"""What may stand before them; the scale in the record decides."""

_OF_FP8 |= {prefix + stat: _OF_FP8[stat] for prefix in FP8_PREFIXES for stat in PLAIN_FP8_STATS}

FP8_STATS = tuple(_OF_FP8)
"""All statistics of 8-bit formats, with prefixes and without."""

_OF_FINITE = {name: formula.of_finite for name, formula in _OF_TENSORS.items()} | _OF_FP8
_WITH_INFINITIES = {
    name: formula.with_infinities for name, formula in _OF_TENSORS.items()
} | _OF_FP8
_WITH_NAN = dict.fromkeys(_OF_TENSORS, _nan) | _OF_FP8


def final_values(record: Record, stats: Sequence[str]) -> dict[str, float]:
    """Return the statistics of a record, rounded to fp32, in the order asked for.

    std is that of a sample, NaN for a single element. Where there are NaN or infinities, the values
    are what torch gives for them; the record's own numbers leave them out.

    Args:
        record: from `collect` or `merge`.
        stats: names of `TENSOR_STATS` and `FP8_STATS`.

    Returns:
        Value by name; empty where the record has no elements.

    Raises:
        InspectValueError: a statistic is not known.

    Example::

        final_values(collect(torch.ones(4)), ["mean", "l1_norm"])  # {"mean": 1.0, "l1_norm": 4.0}
    """
    if not record.n_total:
        return {}
    formulas = _WITH_NAN if record.n_nan else _WITH_INFINITIES if record.n_inf else _OF_FINITE
    exact: list[float] = []
    try:
        for stat in stats:
            exact.append(formulas[stat](record))  # noqa: PERF401 - it costs less
    except KeyError as error:
        known = ", ".join((*TENSOR_STATS, *PLAIN_FP8_STATS))
        raise InspectValueError(f"statistic {error} is not known; known are {known}") from None
    # As many as there are names; having zip look, too, would take a tenth of the time.
    return dict(zip(stats, array("f", exact)))  # noqa: B905
