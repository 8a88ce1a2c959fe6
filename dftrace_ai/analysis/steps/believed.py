"""Events of a file without the times that cannot be, which nobody is to reckon with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.reading.indexed.clocks import (
    LATEST_NS,
    FileTimes,
    TimeCounts,
    is_believable,
)
from dftrace_ai.analysis.reading.indexed.reach import NOWHERE, Reach, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import EventColumns

__all__ = ["believed_columns"]

ROWS_AT_ONCE: Final = 65_536


def believed_columns(columns: EventColumns) -> tuple[EventColumns, FileTimes]:
    """Return the events of a file; those whose times cannot be are without a time.

    Args:
        columns: the events.

    Returns:
        The events, and from when to when those are that have a time.
    """
    reach = joined(_reach_of(columns, rows) for rows in _pieces(columns)) or NOWHERE
    if is_believable(reach):
        return columns, FileTimes(columns.trace, reach)
    counts = TimeCounts(columns.trace)
    for rows in _pieces(columns):
        counts.add(columns.ph[rows], columns.start_ns[rows], columns.dur_ns[rows])
    odd = counts.odd(columns.start_ns, columns.dur_ns)
    return replace(columns, start_ns=np.where(odd, -1, columns.start_ns)), counts.times


def _pieces(columns: EventColumns) -> Iterator[slice]:
    for begin in range(0, len(columns), ROWS_AT_ONCE):
        yield slice(begin, begin + ROWS_AT_ONCE)


def _reach_of(columns: EventColumns, rows: slice) -> Reach:
    start, dur = columns.start_ns[rows], columns.dur_ns[rows]
    timed = (start != -1) & (columns.ph[rows] != ord("M"))
    if not timed.any():
        return NOWHERE
    start = start[timed]
    # What is longer than all times would not be in 64 bits.
    length = dur[timed].clip(0, LATEST_NS)
    return Reach(int(start.min()), int((start.clip(None, LATEST_NS) + length).max()))
