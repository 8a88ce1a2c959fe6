"""What one pass over a tensor leaves, how such records are merged, and the statistics in them."""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple, cast

import dftrace_ai._native as _native
from dftrace_ai.inspect.errors import InspectValueError
from dftrace_ai.inspect.numerics.statistics import NUMBERS, PLAIN_FP8_STATS, TENSOR_STATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "FIELDS",
    "NEUTRAL",
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
_final_values = _native.final_values
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
    try:
        return _final_values(record, stats, NUMBERS)
    except KeyError as error:
        known = ", ".join((*TENSOR_STATS, *PLAIN_FP8_STATS))
        raise InspectValueError(f"statistic {error} is not known; known are {known}") from None
