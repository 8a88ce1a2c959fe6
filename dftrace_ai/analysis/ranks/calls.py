"""The calls of all ranks of a job in some steps, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.groups import GroupsOfJob
from dftrace_ai.analysis.ranks.partials import UNTOLD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.ranks.job import Block
    from dftrace_ai.analysis.ranks.partials import CallRows, RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

# Columns that are taken over as they are.
_SAME: Final = ("late_ns", "until", "seq", "nth", "bytes", "peer", "tag")


class Calls(NamedTuple):
    """Calls of all ranks, those of ranks with one clock beside each other, of a rank by start."""

    rank: Integers  # index in the job
    row: Integers  # in the chunk of its rank; `UNTOLD` for those of a block before
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
    peer: Integers
    tag: Integers
    left: Integers  # whether it was matched before, and lacked others

    def taken(self, rows: Integers) -> Calls:
        """Return some of them."""
        return Calls(*(column[rows] for column in self))

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
    def of(cls, ranks: Sequence[RankPartial]) -> RanksInOrder:
        """Put ranks in order."""
        told = [one.place.clock for one in ranks]
        clocks, clock = np.unique(np.array(told, object), return_inverse=True)
        order = np.argsort(clock, kind="stable")
        place = np.empty(len(ranks), np.int64)
        place[order] = np.arange(len(ranks))
        number = np.array([one.place.rank for one in ranks], np.int64)
        names = tuple(clocks.tolist())
        return cls(
            GroupsOfJob.of(ranks),
            tuple(order.tolist()),
            place,
            clock,
            names,
            number,
            _shift(ranks, clock),
        )

    def calls_of(self, block: Block, first: int, end: int) -> Calls:
        """Return the calls of a block from one step to before another, and of what follows each."""
        stretches = list(self._stretches(block, first, end))
        if not stretches:
            none = np.zeros(0, np.int64)
            return Calls(*(none for _ in Calls._fields))
        counts = [one.end - one.first for one in stretches]
        rank = np.repeat(np.array([one.rank for one in stretches]), counts)
        shift = np.repeat(self.shift_ns[[one.rank for one in stretches]], counts)
        number = np.concatenate([_numbers(block, one) for one in stretches])
        at = np.minimum(np.searchsorted(block.numbers, number), len(block.numbers) - 1)
        common = block.numbers[at] == number
        groups = self.groups
        group = _column(stretches, "group")
        # Of a call without a group: the last one of its rank.
        ends = np.append(groups.first_group[1:], len(groups.of_rank)) - 1
        group = np.where(group == UNTOLD, ends[rank], groups.first_group[rank] + group)
        return Calls(
            rank=rank,
            row=np.concatenate([np.arange(one.first, one.end) for one in stretches]),
            step=np.where(common, at, UNTOLD),
            number=number,
            common=common,
            group=groups.of_rank[group],
            name=groups.calls[groups.first_name[rank] + _column(stretches, "name")],
            start_ns=_column(stretches, "start_ns") + shift,
            end_ns=_column(stretches, "end_ns") + shift,
            **{name: _column(stretches, name) for name in _SAME},
            left=np.zeros(len(rank), bool),
        )

    def _stretches(self, block: Block, first: int, end: int) -> Iterator[_Stretch]:
        for rank in self.order:
            calls, rows = block.chunks[rank].calls, block.rows[rank]
            # What lies in no step follows the one before it.
            reached = np.maximum.accumulate(calls.step) if len(calls.step) else calls.step
            start, stop = 0, len(reached)
            if first:
                start = int(np.searchsorted(reached, rows[first]))
            if end < len(rows):
                stop = int(np.searchsorted(reached, rows[end]))
            if start < stop:
                yield _Stretch(rank, calls, start, stop)


def _shift(ranks: Sequence[RankPartial], clock: Integers) -> Integers:
    """Return what is added to the times of ranks: each read once what its boot began with."""
    shift = np.zeros(len(ranks), np.int64)
    first: dict[int, int] = {}
    for at, one in enumerate(ranks):
        if (own := one.place.clock_offset_ns) is not None:
            shift[at] = first.setdefault(int(clock[at]), own) - own
    return shift


class _Stretch(NamedTuple):
    """Calls of a rank that follow each other."""

    rank: int
    calls: CallRows
    first: int
    end: int


def _column(stretches: Sequence[_Stretch], name: str) -> Integers:
    return np.concatenate([getattr(one.calls, name)[one.first : one.end] for one in stretches])


def _numbers(block: Block, stretch: _Stretch) -> Integers:
    """Return what the steps of calls are called."""
    numbers = np.append(block.chunks[stretch.rank].steps.number, UNTOLD)
    found: Integers = numbers[stretch.calls.step[stretch.first : stretch.end]]
    return found
