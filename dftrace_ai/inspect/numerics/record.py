"""What one pass over a tensor leaves, how records are merged, and the statistics made of them."""

from __future__ import annotations

import math
from array import array
from functools import reduce
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from dftrace_ai.inspect.errors import InspectValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "FIELDS",
    "NEUTRAL",
    "PREFIXES",
    "STATS",
    "Record",
    "final_values",
    "merge",
    "merge_all",
    "with_quantisation",
]

Record: TypeAlias = tuple[float, ...]
"""One number for each of `FIELDS`."""

FIELDS = (
    "n_finite",
    "mean",
    "m2",
    "absolute_sum",
    "min",
    "max",
    "amin_nonzero",
    "amax",
    "n_nan",
    "n_inf",
    "n_zero",
    "n_over",
    "n_under",
    "n_total",
    "square_error",
    "scale_min",
    "scale_max",
)
"""Names of a record's numbers, in their order.

mean, m2 (the sum of squared distances from the mean) and absolute_sum are of the finite elements;
min, max and amax of all but NaN; amin_nonzero of all but NaN and zero. n_over and n_under count
elements that an 8-bit format clips or turns to zero; the scales are NaN where none is known.
"""

NEUTRAL: Record = (
    *(0.0, 0.0, 0.0, 0.0),
    *(math.inf, -math.inf, math.inf, 0.0),
    *(0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    *(0.0, math.nan, math.nan),
)
"""The record of no elements at all."""


def merge(a: Record, b: Record) -> Record:
    """Return the record of the elements of two tensors together.

    The formulas for mean and m2 are those of Chan, Golub, LeVeque, Updating Formulae and a Pairwise
    Algorithm for Computing Sample Variances, 1979.

    Args:
        a: record of the first.
        b: record of the second. Merging in another order may change the last bits.

    Example::

        whole = merge(collect(first_half), collect(second_half))
    """
    n = a[0] + b[0]
    mean, m2 = a[1], a[2]
    if b[0] > 0:
        if a[0] > 0:
            distance = b[1] - mean
            mean += distance * (b[0] / n)
            m2 += b[2] + distance * distance * (a[0] * b[0] / n)
        else:
            mean, m2 = b[1], b[2]
    looked_for_zeros = not (math.isnan(a[6]) or math.isnan(b[6]))
    return (
        n,
        mean,
        m2,
        a[3] + b[3],
        min(a[4], b[4]),
        max(a[5], b[5]),
        min(a[6], b[6]) if looked_for_zeros else math.nan,
        max(a[7], b[7]),
        a[8] + b[8],
        a[9] + b[9],
        a[10] + b[10],
        a[11] + b[11],
        a[12] + b[12],
        a[13] + b[13],
        a[14] + b[14],
        _known(min, a[15], b[15]),
        _known(max, a[16], b[16]),
    )


def _known(choose: Callable[[float, float], float], a: float, b: float) -> float:
    if math.isnan(a):
        return b
    return a if math.isnan(b) else choose(a, b)


def merge_all(records: Iterable[Record]) -> Record:
    """Return the record of all elements, merged from first to last; NEUTRAL for none.

    Example::

        merge_all(collect(part) or NEUTRAL for part in parts)
    """
    remaining = iter(records)
    return reduce(merge, remaining, next(remaining, NEUTRAL))


def with_quantisation(record: Record, quantised: Record) -> Record:
    """Return the record of a tensor with the counts that quantising the same tensor gave.

    Args:
        record: from `collect`.
        quantised: from `fake_quantise(..., with_counts=True)` or `quantisation_record`.

    Example::

        output, counts = fake_quantise(x, Format.E4M3, scale, with_counts=True)
        record = with_quantisation(collect(x), counts)
    """
    return (*record[:11], quantised[11], quantised[12], record[13], *quantised[14:])


def _std(record: Record) -> float:
    return math.sqrt(record[2] / (record[0] - 1)) if record[0] > 1 else math.nan


def _dynamic_range(record: Record) -> float:
    smallest, largest = record[6], record[7]
    if math.isnan(smallest):
        return math.nan
    return math.log2(largest) - math.log2(smallest) if largest else 0.0


_OF_FINITE: dict[str, Callable[[Record], float]] = {
    "min": itemgetter(4),
    "max": itemgetter(5),
    "mean": itemgetter(1),
    "std": _std,
    "l1_norm": itemgetter(3),
    "l2_norm": lambda record: math.sqrt(record[2] + record[0] * record[1] * record[1]),
    "cur_amax": itemgetter(7),
    "dynamic_range": _dynamic_range,
    "underflows%": lambda record: 100 * record[12] / record[13],
    "overflows%": lambda record: 100 * record[11] / record[13],
    "mse": lambda record: record[14] / record[13],
    "scale_inv_min": lambda record: 1 / record[16],
    "scale_inv_max": lambda record: 1 / record[15],
}


def _nan(record: Record) -> float:
    return math.nan


def _infinity(record: Record) -> float:
    return math.inf


def _infinite_mean(record: Record) -> float:
    if record[4] > -math.inf:
        return math.inf
    return math.nan if record[5] == math.inf else -math.inf


_SPREAD = ("mean", "std", "l1_norm", "l2_norm")
_ORDER = ("min", "max", "cur_amax", "dynamic_range")
_WITH_NAN = _OF_FINITE | dict.fromkeys((*_SPREAD, *_ORDER), _nan)
_WITH_INFINITIES = _OF_FINITE | {
    "mean": _infinite_mean,
    "std": _nan,
    "l1_norm": _infinity,
    "l2_norm": _infinity,
    "dynamic_range": lambda record: math.nan if math.isinf(record[6]) else math.inf,
}

STATS = tuple(_OF_FINITE)
"""The statistics that can be made of a record, by their canonical names."""

PREFIXES = ("fp8_current_scaling_", "fp8_delayed_scaling_")
"""What may stand before the statistics of 8-bit formats; the scale in the record decides."""

_FP8_STATS = ("underflows%", "overflows%", "mse", "scale_inv_min", "scale_inv_max")
for _table in (_OF_FINITE, _WITH_NAN, _WITH_INFINITIES):
    _table |= {prefix + stat: _table[stat] for prefix in PREFIXES for stat in _FP8_STATS}


def final_values(record: Record, stats: Sequence[str]) -> dict[str, float]:
    """Return the statistics of a record, rounded to fp32, in the order asked for.

    std is that of a sample, NaN for a single element. Where there are NaN or infinities, the values
    are what torch gives for them; the record's own numbers leave them out.

    Args:
        record: from `collect` or `merge`.
        stats: names of `STATS`, those of 8-bit formats also with one of `PREFIXES`.

    Returns:
        Value by name; empty where the record has no elements.

    Raises:
        InspectValueError: a statistic is not known.

    Example::

        final_values(collect(torch.ones(4)), ["mean", "l1_norm"])  # {"mean": 1.0, "l1_norm": 4.0}
    """
    if not record[13]:
        return {}
    formulas = _WITH_NAN if record[8] else _WITH_INFINITIES if record[9] else _OF_FINITE
    try:
        exact = [formulas[stat](record) for stat in stats]
    except KeyError as error:
        known = ", ".join(STATS)
        raise InspectValueError(f"statistic {error} is not known; known are {known}") from None
    return dict(zip(stats, array("f", exact), strict=True))
