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


class Record(NamedTuple):
    """The numbers of a tensor, called as in the native module."""

    n_finite: float  # finite elements
    mean: float  # of the finite elements
    m2: float  # the sum of squared distances from the mean
    absolute_sum: float  # of the finite elements
    min: float  # of all elements but NaN
    max: float  # of all elements but NaN
    # The smallest magnitude of all but NaN and zero; NaN where zeros were not looked for.
    amin_nonzero: float
    amax: float  # the largest magnitude of all but NaN
    n_nan: float  # elements that are NaN
    n_inf: float  # infinite elements
    n_zero: float  # elements that are zero; NaN where they were not looked for
    n_over: float  # elements that an 8-bit format clips
    n_under: float  # elements that it turns to zero
    n_total: float  # all elements
    square_error: float  # of the quantised elements, summed up
    scale_min: float  # the smallest scale, NaN where none is known
    scale_max: float  # the largest scale, NaN where none is known


# What the native module makes are records from now on.
_native.tensor_records_as(Record)
_final_values = _native.final_values

# The formulas for mean and m2 are those of Chan, Golub, LeVeque, Updating Formulae and a Pairwise
# Algorithm for Computing Sample Variances, 1979. Merging in another order may change the last bits.
merge = cast("Callable[[Record, Record], Record]", _native.merge_records)
"""Gives the record of the elements of two tensors together."""

with_quantisation = cast("Callable[[Record, Record], Record]", _native.record_with_quantisation)
"""Gives the record of a tensor with the counts that quantising the same tensor gave."""

FIELDS = Record._fields
"""Names of a record's numbers, in their order."""

record_of: Callable[[Iterable[float]], Record] = partial(tuple.__new__, Record)
"""Makes a record of its numbers in their order, at a third of the cost of `Record(...)`."""

NEUTRAL = record_of([0.0] * len(FIELDS))._replace(
    min=math.inf, max=-math.inf, amin_nonzero=math.inf, scale_min=math.nan, scale_max=math.nan
)
"""The record of no elements at all."""


def merge_all(records: Iterable[Record]) -> Record:
    """Return the record of all elements, merged from first to last; NEUTRAL for none."""
    remaining = iter(records)
    return reduce(merge, remaining, next(remaining, NEUTRAL))


def final_values(record: Record, stats: Sequence[str]) -> dict[str, float]:
    """Return the statistics of a record, rounded to fp32, in the order asked for."""
    # std is that of a sample, NaN for a single element. Where there are NaN or infinities, the
    # values are what torch gives for them; the record's own numbers leave them out. Empty where the
    # record has no elements.
    try:
        return _final_values(record, stats, NUMBERS)
    except KeyError as error:
        known = ", ".join((*TENSOR_STATS, *PLAIN_FP8_STATS))
        raise InspectValueError(f"statistic {error} is not known; known are {known}") from None
