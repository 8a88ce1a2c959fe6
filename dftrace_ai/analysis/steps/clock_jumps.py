"""Clocks that were set back while a program recorded, in the columns of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dftrace_ai.analysis.reading.indexed.clocks import APART_NS, NEVER
from dftrace_ai.analysis.reading.indexed.set_back import set_back

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers
    from dftrace_ai.analysis.reading.indexed.clocks import SetBack

__all__ = ["clock_of"]


def clock_of(columns: EventColumns) -> SetBack:
    """Return by how much the clock was set back by which a file was recorded.

    Args:
        columns: the events, in the order of the lines.
    """
    rows = np.flatnonzero(
        (columns.ph == ord("X")) & (columns.start_ns >= 0) & (columns.dur_ns >= 0)
    )
    start, length = columns.start_ns[rows], columns.dur_ns[rows]
    if not len(rows) or _is_in_order(start, length):
        return NEVER
    pid, tid = columns.pid[rows], columns.tid[rows]
    order = np.lexsort((tid, pid))
    start, length, pid, tid = start[order], length[order], pid[order], tid[order]
    begins = np.flatnonzero((pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1])) + 1
    return set_back(np.split(np.stack([start, length], 1), begins))


def _is_in_order(start: Integers, length: Integers) -> bool:
    """Return whether no span ends an hour before one begins that stands before it."""
    return bool((start + length >= np.maximum.accumulate(start) - APART_NS).all())
