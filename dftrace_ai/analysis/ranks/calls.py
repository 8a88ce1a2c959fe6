"""The calls of all ranks of a job in some steps, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.groups import GroupsOfJob
from dftrace_ai.analysis.ranks.partials import UNTOLD, CallRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.ranks.job import Block
    from dftrace_ai.analysis.ranks.partials import RankPartial
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
        stretches = list(self._stretches(block, first, end))
        if not stretches:
            none = np.zeros(0, np.int64)
            return Calls(*(none for _ in Calls._fields))
        counts = [one.end - one.first for one in stretches]
        parts = [slice(one.first, one.end) for one in stretches]
        columns = dict(
            zip(CallRows._fields, zip(*(one.calls for one in stretches), strict=True), strict=True)
        )

        def column(name: str) -> Integers:
            return np.concatenate(
                [one[part] for one, part in zip(columns[name], parts, strict=True)]
            )

        ranks = np.array([one.rank for one in stretches])
        rank, shift = np.repeat(ranks, counts), np.repeat(self.shift_ns[ranks], counts)
        skipped = np.cumsum(counts) - counts - [one.first for one in stretches]
        # Steps of the chunks, those of all ranks in a row; the last is of calls without one.
        steps = [block.chunks[one.rank].steps.number for one in stretches]
        numbers = np.concatenate([*steps, [UNTOLD]])
        lengths = [len(number) for number in steps]
        step = column("step")
        starts = np.repeat(np.cumsum(lengths) - lengths, counts)
        at = np.where(step == UNTOLD, len(numbers) - 1, starts + step)
        place = np.minimum(np.searchsorted(block.numbers, numbers), len(block.numbers) - 1)
        place[block.numbers[place] != numbers] = UNTOLD
        step = place[at]
        groups = self.groups
        group = column("group")
        # Of a call without a group: the last one of its rank.
        ends = np.append(groups.first_group[1:], len(groups.of_rank)) - 1
        group = np.where(group == UNTOLD, ends[rank], groups.first_group[rank] + group)
        return Calls(
            rank=rank,
            row=np.arange(len(rank)) - np.repeat(skipped, counts),
            step=step,
            number=numbers[at],
            common=step != UNTOLD,
            group=groups.of_rank[group],
            name=groups.calls[groups.first_name[rank] + column("name")],
            start_ns=column("start_ns") + shift,
            end_ns=column("end_ns") + shift,
            **{name: column(name) for name in _SAME},
            left=np.zeros(len(rank), bool),
        )

    def _stretches(self, block: Block, first: int, end: int) -> Iterator[_Stretch]:
        for rank in self.order:
            calls, rows = block.chunks[rank].calls, block.rows[rank]
            start, stop = 0, len(calls.step)
            if first or end < len(rows):
                # What lies in no step follows the one before it.
                reached = np.maximum.accumulate(calls.step)
                start = int(np.searchsorted(reached, rows[first])) if first else 0
                stop = int(np.searchsorted(reached, rows[end])) if end < len(rows) else stop
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
