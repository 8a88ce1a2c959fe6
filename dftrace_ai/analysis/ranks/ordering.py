"""Rows that agree in some columns side by side, by one sort of whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai._reader import counted_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers

_MOST: Final = 1 << 62
_DENSE: Final = 4


def sorted_by(columns: Sequence[Integers]) -> tuple[Integers, Integers]:
    """Return an order by whole numbers, and where sets that agree begin; in them rows stay."""
    count = len(columns[0])
    if not count:
        none = np.zeros(0, np.int64)
        return none, none
    key, width = np.zeros(count, np.int64), 1
    for column in columns:
        if column.strides == (0,):
            continue  # one number all over
        low, high = int(column.min()), int(column.max())
        if (wide := high - low + 1) == 1:
            continue
        if width * wide >= _MOST:
            key, width = _numbered(key)
            if width * wide >= _MOST:
                column, wide = _numbered(column)  # noqa: PLW2901 - the same by other numbers
                low = 0
        key = column - low if width == 1 else key * wide + (column - low)
        width *= wide
    if width <= _DENSE * count:
        # As many numbers as there may be are counted.
        in_order, starts = counted_order(key, width)
        return np.frombuffer(in_order, np.int64), np.frombuffer(starts, np.int64)
    bits = (count - 1).bit_length()
    if width < _MOST >> bits:
        # Sorting numbers is several times faster than sorting where they are.
        packed = np.sort((key << bits) | np.arange(count))
        order, key = packed & ((1 << bits) - 1), packed >> bits
    else:
        order = np.argsort(key, kind="stable")
        key = key[order]
    return order, begins(key)


def begins(*columns: Integers) -> Integers:
    """Return where runs of rows that agree in all columns begin."""
    differs = np.ones(len(columns[0]), bool)
    differs[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def some_of(column: Integers, rows: slice | Integers) -> Integers:
    """Return some rows of a column, which may be one number all over."""
    if isinstance(rows, slice):
        return column[rows]
    if len(column) and column.strides == (0,):
        return np.broadcast_to(column[:1], len(rows))
    return column.take(rows)


def rows_from(begins: Integers, counts: Integers) -> Integers:
    """Return rows that follow each other, so many from each beginning on."""
    shift = begins - np.cumsum(counts) + counts
    rows: Integers = np.arange(counts.sum()) + np.repeat(shift, counts)
    return rows


def place_in_set(order: Integers, first: Integers) -> Integers:
    """Return of each row how many of its set stand before it, for what `sorted_by` returns."""
    place = np.empty(len(order), np.int64)
    size = np.diff(first, append=len(order))
    place[order] = np.arange(len(order)) - np.repeat(first, size)
    return place


def any_in(mask: Integers, first: Integers) -> Integers:
    """Return of each run of rows whether any is in a mask."""
    if not len(first):
        return np.zeros(0, bool)
    found: Integers = np.logical_or.reduceat(mask, first)
    return found


def _numbered(column: Integers) -> tuple[Integers, int]:
    values, number = np.unique(column, return_inverse=True)
    return number, len(values)
