"""The calls of all ranks of a job in some steps, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.groups import GroupsOfJob
from dftrace_ai.analysis.ranks.ordering import rows_from, some_of
from dftrace_ai.analysis.ranks.partials import UNTOLD, CallRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.ranks.blocks import Block
    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

# Columns that are taken over as they are.
_SAME: Final = ("late_ns", "until", "seq", "nth", "bytes", "track", "peer", "tag")


class Calls(NamedTuple):
    """Calls of all ranks, those of ranks with one clock beside each other, of a rank by start."""

    rank: Integers  # index in the job
    # in what was read of its rank, of a block that is matched at once; `UNTOLD` for one before
    row: Integers
    step: Integers  # index in the steps of the block; `UNTOLD` for others
    number: Integers  # what the step is called; `UNTOLD` for none
    common: Integers  # whether all ranks have the step
    group: Integers  # index in the groups of the job
    name: Integers  # index in `groups.CALLS`; `UNTOLD` for what is no call that is known
    start_ns: Integers  # by the clock that the ranks beside it have, too
    end_ns: Integers
    late_ns: Integers  # this, and all that follow but the last, as in `CallRows`
    until: Integers
    seq: Integers
    nth: Integers
    bytes: Integers
    track: Integers
    peer: Integers
    tag: Integers
    left: Integers  # whether it was matched before, and lacked others

    def taken(self, rows: Integers) -> Calls:
        """Return some of them."""
        return Calls(*(some_of(column, rows) for column in self))

    def and_then(self, other: Calls) -> Calls:
        """Return these and others."""
        return Calls(*(np.concatenate(both) for both in zip(self, other, strict=True)))


@dataclass(frozen=True, repr=False)
class RanksInOrder:
    """The ranks of a job, those with one clock beside each other."""

    groups: GroupsOfJob  # of all of them
    order: tuple[int, ...]  # their indices in the job
    place: Integers  # of each rank in that order
    clock: Integers  # of each rank, its index in `clocks`
    clocks: tuple[str, ...]  # what they are called, in order
    number: Integers  # of each rank, what it is called
    shift_ns: Integers  # of each rank, what brings its times to those of the first of its clock

    @classmethod
    def of(
        cls, ranks: Sequence[RankPartial], clocks_told: Sequence[str] | None = None
    ) -> RanksInOrder:
        """Put ranks in order; by the clocks of their hosts, if those of ranks are not told."""
        told = clocks_told or [one.place.clock for one in ranks]
        clocks, clock = np.unique(np.array(told, object), return_inverse=True)
        order = np.argsort(clock, kind="stable")
        place = np.empty(len(ranks), np.int64)
        place[order] = np.arange(len(ranks))
        number = np.array([one.place.rank for one in ranks], np.int64)
        names = tuple(clocks.tolist())
        return cls(
            GroupsOfJob.of(ranks, order),
            tuple(order.tolist()),
            place,
            clock,
            names,
            number,
            _shift(ranks, clock),
        )

    def calls_of(self, block: Block, first: int, end: int) -> Calls:
        """Return the calls of a block from one step to before another, and of what follows each."""
        table = block.tables.calls
        begins, counts, rows = self._some(block, first, end)
        ranks = np.array(self.order)
        rank = np.repeat(ranks, counts)
        row = np.arange(len(rank)) - np.repeat(np.cumsum(counts) - counts, counts)
        row += np.repeat(begins - table.edges[ranks], counts)
        told = CallRows(*(some_of(column, rows) for column in table.rows))
        step, number = block.steps_of(rank, told.step)
        groups = self.groups
        start, end_ns = told.start_ns, told.end_ns
        if self.shift_ns.any():
            shift = self.shift_ns.take(rank)
            start, end_ns = start + shift, end_ns + shift
        return Calls(
            rank=rank,
            row=row,
            step=step,
            number=number,
            common=step != UNTOLD,
            group=_of_job(groups.of_rank, groups.first_group, rank, told.group),
            name=_of_job(groups.calls, groups.first_name, rank, told.name),
            start_ns=start,
            end_ns=end_ns,
            **{name: getattr(told, name) for name in _SAME},
            left=np.broadcast_to(np.False_, len(rank)),
        )

    def _some(
        self, block: Block, first: int, end: int
    ) -> tuple[Integers, Integers, slice | Integers]:
        """Return where calls of ranks in order begin in their table, how many, and their rows."""
        table = block.tables.calls
        low, high = block.calls_between(first, end)
        order = np.array(self.order)
        begins, counts = low[order], (high - low)[order]
        if counts.sum() == len(table.rows.step) and (np.diff(order) == 1).all():
            return begins, counts, slice(None)
        return begins, counts, rows_from(begins, counts)


def _of_job(numbers: Integers, first: Integers, rank: Integers, told: Integers) -> Integers:
    """Return what numbers of ranks are in the job: those of each begin somewhere in a row of all.

    The last of each is what is not told.
    """
    behind = np.append(first[1:], len(numbers))
    if len(told) and told.strides == (0,):
        at = (behind if told[0] == UNTOLD else first) + told[0]
        of_rank = numbers[np.minimum(at, len(numbers) - 1)]
        same = (of_rank == of_rank[0]).all()
        return np.broadcast_to(of_rank[0], len(told)) if same else of_rank.take(rank)
    at = first.take(rank) + told
    untold = told == UNTOLD
    if untold.any():
        at = np.where(untold, behind.take(rank) - 1, at)
    return numbers.take(at)


def _shift(ranks: Sequence[RankPartial], clock: Integers) -> Integers:
    """Return what is added to the times of ranks: each read once what its boot began with."""
    shift = np.zeros(len(ranks), np.int64)
    first: dict[int, int] = {}
    for at, one in enumerate(ranks):
        if (own := one.place.clock_offset_ns) is not None:
            shift[at] = first.setdefault(int(clock[at]), own) - own
    return shift
