"""What one pass over a tensor leaves, how records are merged, and the statistics made of them."""

from __future__ import annotations

import math
from array import array
from functools import partial, reduce
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, cast

import dftrace_ai._native as _native
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
    "record_of",
    "with_quantisation",
]


class Record(NamedTuple):
    """The numbers of a tensor, called as in the native module.

    Attributes:
        n_finite: finite elements.
        mean: of the finite elements.
        m2: the sum of squared distances from the mean.
        absolute_sum: of the finite elements.
        min: of all elements but NaN.
        max: of all elements but NaN.
        amin_nonzero: the smallest magnitude of all but NaN and zero; NaN where zeros were not
            looked for.
        amax: the largest magnitude of all but NaN.
        n_nan: elements that are NaN.
        n_inf: infinite elements.
        n_zero: elements that are zero; NaN where they were not looked for.
        n_over: elements that an 8-bit format clips.
        n_under: elements that it turns to zero.
        n_total: all elements.
        square_error: of the quantised elements, summed up.
        scale_min: the smallest scale, NaN where none is known.
        scale_max: the largest scale, NaN where none is known.
    """

    n_finite: float
    mean: float
    m2: float
    absolute_sum: float
    min: float
    max: float
    amin_nonzero: float
    amax: float
    n_nan: float
    n_inf: float
    n_zero: float
    n_over: float
    n_under: float
    n_total: float
    square_error: float
    scale_min: float
    scale_max: float


# What the native module makes are records from now on.
_native.tensor_records_as(Record)
_merge = cast("Callable[[Record, Record], Record]", _native.merge_records)
_with_quantisation = cast("Callable[[Record, Record], Record]", _native.record_with_quantisation)

FIELDS = Record._fields
"""Names of a record's numbers, in their order."""

record_of: Callable[[Iterable[float]], Record] = partial(tuple.__new__, Record)
"""Makes a record of its numbers in their order, at a third of the cost of `Record(...)`."""

NEUTRAL = Record(
    n_finite=0.0,
    mean=0.0,
    m2=0.0,
    absolute_sum=0.0,
    min=math.inf,
    max=-math.inf,
    amin_nonzero=math.inf,
    amax=0.0,
    n_nan=0.0,
    n_inf=0.0,
    n_zero=0.0,
    n_over=0.0,
    n_under=0.0,
    n_total=0.0,
    square_error=0.0,
    scale_min=math.nan,
    scale_max=math.nan,
)
"""The record of no elements at all."""


def merge(a: Record, b: Record) -> Record:
    """Return the record of the elements of two tensors together.

    The formulas for mean and m2 are those of Chan, Golub, LeVeque, Updating Formulae and a Pairwise
    Algorithm for Computing Sample Variances, 1979; the native module has them.

    Args:
        a: record of the first.
        b: record of the second. Merging in another order may change the last bits.

    Example::

        whole = merge(collect(first_half), collect(second_half))
    """
    return _merge(a, b)


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
    return _with_quantisation(record, quantised)


def _std(record: Record) -> float:
    n = record.n_finite
    return math.sqrt(record.m2 / (n - 1)) if n > 1 else math.nan


def _dynamic_range(record: Record) -> float:
    smallest, largest = record.amin_nonzero, record.amax
    if math.isnan(smallest):
        return math.nan
    return math.log2(largest) - math.log2(smallest) if largest else 0.0


def _l2_norm(record: Record) -> float:
    mean = record.mean
    return math.sqrt(record.m2 + record.n_finite * mean * mean)


_OF_FINITE: dict[str, Callable[[Record], float]] = {
    "min": attrgetter("min"),
    "max": attrgetter("max"),
    "mean": attrgetter("mean"),
    "std": _std,
    "l1_norm": attrgetter("absolute_sum"),
    "l2_norm": _l2_norm,
    "cur_amax": attrgetter("amax"),
    "dynamic_range": _dynamic_range,
    "underflows%": lambda record: 100 * record.n_under / record.n_total,
    "overflows%": lambda record: 100 * record.n_over / record.n_total,
    "mse": lambda record: record.square_error / record.n_total,
    "scale_inv_min": lambda record: 1 / record.scale_max,
    "scale_inv_max": lambda record: 1 / record.scale_min,
}


def _nan(record: Record) -> float:
    return math.nan


def _infinity(record: Record) -> float:
    return math.inf


def _infinite_mean(record: Record) -> float:
    if record.min > -math.inf:
        return math.inf
    return math.nan if record.max == math.inf else -math.inf


_SPREAD = ("mean", "std", "l1_norm", "l2_norm")
_ORDER = ("min", "max", "cur_amax", "dynamic_range")
_WITH_NAN = _OF_FINITE | dict.fromkeys((*_SPREAD, *_ORDER), _nan)
_WITH_INFINITIES = _OF_FINITE | {
    "mean": _infinite_mean,
    "std": _nan,
    "l1_norm": _infinity,
    "l2_norm": _infinity,
    "dynamic_range": lambda record: math.nan if math.isinf(record.amin_nonzero) else math.inf,
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
    if not record.n_total:
        return {}
    formulas = _WITH_NAN if record.n_nan else _WITH_INFINITIES if record.n_inf else _OF_FINITE
    exact: list[float] = []
    try:
        for stat in stats:
            exact.append(formulas[stat](record))  # noqa: PERF401 - it costs less
    except KeyError as error:
        known = ", ".join(STATS)
        raise InspectValueError(f"statistic {error} is not known; known are {known}") from None
    # As many as there are names; having zip look, too, would take a tenth of the time.
    return dict(zip(stats, array("f", exact)))  # noqa: B905
