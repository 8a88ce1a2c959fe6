"""Clocks that were set back while a program recorded: by lines whose times go back by hours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dftrace_ai.analysis.reading.indexed.clocks import APART_NS, LATEST_NS, NEVER, SetBack
from dftrace_ai.analysis.reading.indexed.reach import EARLIEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["set_back"]

# What goes back more often has no order at all; what goes back for less are lines that came late.
MOST_PLACES: Final = 3
FEWEST_ROWS: Final = 10


def set_back(tracks: Iterable[Any]) -> SetBack:
    """Return by how much the clock was set back in a file whose lines are in the order of time.

    Lines come in the order of the ends of spans, or of their beginnings. In either, a span does not
    end before one has begun that stands before it on its thread. Where many end an hour before
    that, the clock was set. Files without any order tell nothing, and times that cannot be are left
    out. `_reader.Totals` does the same. Of each thread there are starts and lengths, ns, in the
    order of the lines: (spans, 2).
    """
    spans = [np.asarray(track, np.int64).reshape(-1, 2) for track in tracks]
    kinds = [_kind(start, length) for start, length in (track.T for track in spans)]
    dates = sum(int((kind == 1).sum()) for kind in kinds)
    believed = int(dates >= sum(int((kind == 0).sum()) for kind in kinds))
    found = [NEVER]
    for track, kind in zip(spans, kinds, strict=True):
        start, length = track[(kind == believed) & (track[:, 0] >= 0)].T
        found.append(_of_thread(start, start + length))
    return SetBack(max(one.ns for one in found), max(one.places for one in found))


def _kind(start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[Any]:
    """Return 1 for times that are dates, 0 for those before, 2 for what is too late to be."""
    return np.where(length > LATEST_NS - start.clip(0), 2, start >= EARLIEST_NS)


def _of_thread(start: NDArray[np.int64], end: NDArray[np.int64]) -> SetBack:
    if not len(start):
        return NEVER
    begun = np.maximum.accumulate(start)
    back = end < np.concatenate([begun[:1], begun[:-1]]) - APART_NS
    edges = np.diff(back.astype(np.int8), prepend=0, append=0)
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(begins) or len(begins) > MOST_PLACES or (ends - begins).min() < FEWEST_ROWS:
        return NEVER
    return SetBack(int((begun - start)[begins].max()), len(begins))
