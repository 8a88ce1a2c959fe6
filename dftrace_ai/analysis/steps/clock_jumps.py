"""Clocks that were set back while a program recorded: by lines whose times go back by hours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.reading.indexed.clocks import APART_NS

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers

__all__ = ["NEVER", "SetBack", "set_back"]

# What goes back more often has no order at all; what goes back for less are lines that came late.
MOST_PLACES: Final = 3
FEWEST_ROWS: Final = 10


class SetBack(NamedTuple):
    """How the clock of a file was set back.

    Attributes:
        ns: by how much, at most.
        places: how often, in the thread in which that was most often.
    """

    ns: int = 0
    places: int = 0


NEVER: Final = SetBack()


def set_back(columns: EventColumns) -> SetBack:
    """Return by how much the clock was set back in a file whose lines are in the order of time.

    Lines come in the order of the ends of spans, or of their beginnings. In either, a span does not
    end before one has begun that stands before it on its thread. Where many end an hour before
    that, the clock was set. That of our own recorder cannot be, and files without any order tell
    nothing.

    Args:
        columns: the events, in the order of the lines.
    """
    rows = np.flatnonzero(
        (columns.ph == ord("X")) & (columns.start_ns >= 0) & (columns.dur_ns >= 0)
    )
    start = columns.start_ns[rows]
    end = start + columns.dur_ns[rows]
    if not _back(start, end).any():
        return NEVER
    pid, tid = columns.pid[rows], columns.tid[rows]
    order = np.lexsort((tid, pid))
    start, end, pid, tid = start[order], end[order], pid[order], tid[order]
    begins = np.flatnonzero((pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1])) + 1
    found = [
        _of_thread(*of_thread)
        for of_thread in zip(np.split(start, begins), np.split(end, begins), strict=True)
    ]
    return SetBack(max(one.ns for one in found), max(one.places for one in found))


def _back(start: Integers, end: Integers) -> Integers:
    """Return which spans have ended an hour before one began that stands before them."""
    begun = np.maximum.accumulate(start)
    return end < np.concatenate([begun[:1], begun[:-1]]) - APART_NS


def _of_thread(start: Integers, end: Integers) -> SetBack:
    back = _back(start, end)
    edges = np.diff(back.astype(np.int8), prepend=0, append=0)
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(begins) or len(begins) > MOST_PLACES or (ends - begins).min() < FEWEST_ROWS:
        return NEVER
    far = (np.maximum.accumulate(start) - start)[begins]
    return SetBack(int(far.max()), len(begins))
