"""Which spans lie inside of which on their tracks, and what of their time is their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.track_order import FIRST_LANE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers

MOST_SPREAD: Final = 100_000

# `native/include/dftrace/index/frames.hpp` says the same.
FRAMES: Final = frozenset({("pipeline", "step"), ("pipeline", "epoch"), ("pipeline", "evaluate")})


def may_be_frames(
    labels: Sequence[tuple[str, str]], label: Integers, tid: Integers, outermost: Integers
) -> Integers:
    """Return which spans are frames, where nothing lies inside of them on their track."""
    # Outermost steps, epochs and evaluations on a track that is no thread's are around what some
    # thread does, and have no time of their own.
    codes = [code for code, called in enumerate(labels) if called in FRAMES]
    if not codes:
        return np.zeros(len(label), bool)
    found: Integers = np.isin(label, codes) & (tid >= FIRST_LANE) & (outermost != 0)
    return found


def track_order(track: Integers, start_ns: Integers, end_ns: Integers, ids: Integers) -> Integers:
    """Return the order in which `parents_of` needs spans: those around others before them."""
    # Those of the same time come by their ids; of those without the last written encloses others.
    order = np.lexsort((start_ns, track))
    begin, of_track = start_ns[order], track[order]
    same = (begin[1:] == begin[:-1]) & (of_track[1:] == of_track[:-1])
    # Few begin together, and only these need more than that to be told apart.
    tied = np.zeros(len(order), bool)
    tied[1:] |= same
    tied[:-1] |= same
    rows = order[tied]
    keys = (-rows, ids[rows], -end_ns[rows], start_ns[rows], track[rows])
    order[tied] = rows[np.lexsort(keys)]
    return order


def distinct(values: Integers) -> tuple[Integers, Integers]:
    """Return the values that there are, in order, and for each which of them it is."""
    # As ``np.unique`` does, without sorting where they are whole numbers that lie close together.
    if not len(values):
        return values, np.zeros(0, np.int64)
    least, most = int(values.min()), int(values.max())
    if most - least > 2 * len(values) + MOST_SPREAD:
        found, which = np.unique(values, return_inverse=True)
        return found, which
    moved = values - least
    there = np.zeros(most - least + 1, bool)
    there[moved] = True
    number = np.cumsum(there, dtype=np.int32) - 1
    return np.flatnonzero(there) + least, number[moved]


def parents_of(track: Integers, start_ns: Integers, end_ns: Integers, near_ns: int = 0) -> Integers:
    """Return for each span the one directly around it on its track, -1 where there is none."""
    # They are in the order of `track_order`. Of several around a span that is the one that begins
    # last; one that only overlaps it is none. Rounding may let a span end `near_ns` later.
    kind = np.int32 if len(start_ns) < 2**31 else np.int64
    around = np.arange(-1, len(start_ns) - 1, dtype=kind)
    open_rows = np.arange(len(start_ns), dtype=kind)
    while len(open_rows):
        outer = around[open_rows]
        outside = track[outer] != track[open_rows]
        ended = end_ns[outer] + near_ns < end_ns[open_rows]
        # A span without length may stand at the end of the one around it.
        ended |= (end_ns[outer] <= start_ns[open_rows]) & (end_ns[outer] < end_ns[open_rows])
        around[open_rows[outside | (outer < 0)]] = -1
        going = ended & ~outside & (outer >= 0)
        # All between a span and the one that it has asked so far are no parents of it, so it may
        # go on from where that one is; the distances double.
        open_rows, outer = open_rows[going], outer[going]
        around[open_rows] = around[outer]
    return around


def own_ns(parents: Integers, start_ns: Integers, end_ns: Integers) -> Integers:
    """Return of each span's time what no spans take that lie directly inside of it."""
    own = end_ns - start_ns
    inner = np.flatnonzero(parents >= 0)
    outer = parents[inner]
    # Rounding may let them stick out.
    until = np.minimum(end_ns[inner], end_ns[outer])
    np.subtract.at(own, outer, np.maximum(until - start_ns[inner], 0))
    order = np.argsort(outer, kind="stable")
    inner, outer, until = inner[order], outer[order], until[order]
    same = outer[1:] == outer[:-1]
    overlapping = np.unique(outer[1:][same & (start_ns[inner][1:] < until[:-1])])
    for parent in overlapping.tolist():
        low, high = np.searchsorted(outer, [parent, parent + 1])
        starts, ends = start_ns[inner[low:high]], until[low:high]
        reach = np.maximum.accumulate(ends)
        begins = np.maximum(starts, np.concatenate([[start_ns[parent]], reach[:-1]]))
        covered = int(np.maximum(ends - begins, 0).sum())
        own[parent] = end_ns[parent] - start_ns[parent] - covered
    least: Integers = np.maximum(own, 0)
    return least


def places_of(
    parents: Integers, code: Integers, roots: Integers, number: Callable[[int, int], int]
) -> Integers:
    """Return the place of each span in the tree: one number for the same names from outside in."""
    # `code` is of the name of each, `roots`, below 0, stands for what is around the outermost.
    # `number` gives one from 0 to a place by the place or root around it and the code, once each.
    place = np.full(len(parents), -1, np.int32)
    # Half of the memory than whole numbers take by default.
    level = np.flatnonzero(parents < 0).astype(np.int32)
    inner = np.flatnonzero(parents >= 0).astype(np.int32)
    least = int(roots.min()) if len(roots) else -1
    names = int(code.max()) + 1 if len(code) else 1
    numbers: dict[int, int] = {}
    while len(level):
        around = np.where(parents[level] >= 0, place[parents[level]], roots[level])
        pairs, which = distinct((around.astype(np.int64) - least) * names + code[level])
        for pair in pairs.tolist():
            if pair not in numbers:
                numbers[pair] = number(pair // names + least, pair % names)
        place[level] = np.array([numbers[pair] for pair in pairs.tolist()], np.int32)[which]
        ready = place[parents[inner]] >= 0
        level, inner = inner[ready], inner[~ready]
    return place
