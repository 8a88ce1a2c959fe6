"""Ranks whose times are not by the clock that the others of their host go by.

A wall clock is set between the starts of two ranks, or a trace has times that cannot be. What such
a rank says of collectives contradicts the others on its clock. So it has a clock of its own, which
is brought to theirs as that of another host is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.job import RanksOfJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.ranks.calls import RanksInOrder
    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

# Ranks of a host begin a step within a few steps of each other, whatever they wait for.
APART_NS: Final = 1_000_000_000
APART_STEPS: Final = 20


def own_clocks(found: RanksInOrder, ranks: Sequence[RankPartial]) -> tuple[str, ...] | None:
    """Return what the clock of each rank is called where some have their own; None where none has.

    They are known by when the first steps begin that all ranks have.
    """
    if len(found.clocks) == len(ranks):
        return None
    block = next(RanksOfJob(tuple(ranks)).blocks("steps"), None)
    if block is None:
        return None
    start = block.tables.steps.rows.start_ns[block.at] + found.shift_ns[:, None]
    most = max(APART_NS, APART_STEPS * int(np.median(block.time_ns.max(axis=0))))
    apart = np.zeros(len(ranks), bool)
    for clock in range(len(found.clocks)):
        mine = np.flatnonzero(found.clock == clock)
        if len(mine) > 1:
            apart[mine] = _from_middle(start[mine]) > most
    if not apart.any():
        return None
    return tuple(
        f"{one.place.clock}, rank {one.place.rank}" if own else one.place.clock
        for one, own in zip(ranks, apart.tolist(), strict=True)
    )


def _from_middle(start: Integers) -> Integers:
    """Return how far ranks usually are from the one in the middle, by their starts of steps."""
    middle = np.sort(start, axis=0)[(len(start) - 1) // 2]
    usual: Integers = np.median(np.abs(start - middle), axis=1)
    return usual
