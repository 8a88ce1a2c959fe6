"""Steps that all ranks of a job have, with what each did in them: a chunk of each, put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.packing import TableAside, calls_in, one_table, tables_of
from dftrace_ai.analysis.ranks.partials import STEPS_OF_CHUNK, UNTOLD
from dftrace_ai.analysis.reading.set_aside import SetAside
from dftrace_ai.analysis.steps.spans import places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.ranks.packing import Kind, Tables
    from dftrace_ai.analysis.ranks.partials import CallRows, RankPartial, StepsChunk
    from dftrace_ai.analysis.reading.event_columns import Integers

# About so many calls are unpacked at once where some of their steps alone are wanted.
CALLS_IN_LOT: Final = 1 << 16


@dataclass(frozen=True, repr=False)
class Block:
    """Steps that all ranks of a job have, and what their chunks hold."""

    numbers: Integers  # what the steps are called, in order
    ranks: tuple[RankPartial, ...]
    rows: Integers  # (ranks, steps): the row of each step in the chunk of each rank
    tables: Tables  # of the chunks

    @classmethod
    def of(cls, ranks: tuple[RankPartial, ...], tables: Tables) -> Block | None:
        """Put chunks together; None where they have no step in common."""
        steps = tables.steps
        count = int(steps.edges[1])
        if (steps.counts == count).all():
            numbers = steps.rows.number.reshape(-1, count)
            if (numbers == numbers[0]).all():
                rows = np.broadcast_to(np.arange(count), numbers.shape)
                return cls(numbers[0], ranks, rows, tables)
        told = np.split(steps.rows.number, steps.edges[1:-1])
        common = reduce(_in_both, told)
        if not len(common):
            return None
        return cls(common, ranks, np.stack([np.searchsorted(one, common) for one in told]), tables)

    @cached_property
    def at(self) -> Integers:
        """The row of each step in the table of steps, ``(ranks, steps)``."""
        at: Integers = self.rows + self.tables.steps.edges[:-1, None]
        return at

    @cached_property
    def reached(self) -> tuple[Integers, Integers]:
        """Where the steps of each rank begin on one axis, and up to where on it each call is."""
        steps, calls = self.tables.steps, self.tables.calls
        ranks = np.arange(len(self.ranks)) * (int(steps.counts.max()) + 1)
        # What lies in no step follows the one before it.
        step = calls.rows.step + np.repeat(ranks, calls.counts)
        return ranks, np.maximum.accumulate(step)

    def steps_of(self, rank: Integers, row: Integers) -> tuple[Integers, Integers]:
        """Return of rows of steps of ranks where they are in `numbers`, and what they are called.

        `UNTOLD` for none, and of a step that not all ranks have for where it is.
        """
        if not self.rows.strides[0]:  # all ranks have the same
            return row, np.append(self.numbers, UNTOLD).take(row)
        steps = self.tables.steps
        called = np.append(steps.rows.number, UNTOLD)
        number = called.take(np.where(row == UNTOLD, UNTOLD, steps.edges.take(rank) + row))
        at = np.minimum(np.searchsorted(self.numbers, number), len(self.numbers) - 1)
        at[self.numbers[at] != number] = UNTOLD
        return at, number

    @cached_property
    def call_count(self) -> int:
        """How many calls there are in the chunks, whether they were asked for or not."""
        return sum(calls_in(one.chunks, self._number) for one in self.ranks)

    @property
    def _number(self) -> int:
        return int(self.numbers[0]) // STEPS_OF_CHUNK

    def calls_between(self, first: int, end: int) -> tuple[Integers, Integers]:
        """Return where in their table calls of ranks begin and end, from a step to before another.

        What follows a step outside of any is its own.
        """
        edges = self.tables.calls.edges
        low, high = edges[:-1], edges[1:]
        if first or end < len(self.numbers):
            ranks, reached = self.reached
            if first:
                low = places(reached, ranks + self.rows[:, first])
            if end < len(self.numbers):
                high = places(reached, ranks + self.rows[:, end])
        return low, high

    def with_calls(self, edges: Sequence[int]) -> Iterator[Block]:
        """Yield it with the calls from each step to before the next, where it was read without.

        Each is unpacked once, those of some ranks at a time, and set aside until it is its turn.
        """
        pieces = [*pairwise(edges)]
        if len(self.tables.calls.rows.name) or not self.call_count:
            yield from (self for _ in pieces)
            return
        is_all = pieces == [(0, len(self.numbers))]
        lots = 1 if is_all else max(1, -(-self.call_count // CALLS_IN_LOT))
        ranks = np.linspace(0, len(self.ranks), min(lots, len(self.ranks)) + 1).astype(int).tolist()
        waiting: list[list[TableAside[CallRows]]] = [[] for _ in pieces]
        aside = SetAside()
        for lot in starmap(slice, pairwise(ranks)):
            part = self._of_ranks(lot)
            for piece, (first, end) in zip(waiting, pieces, strict=True):
                some = part.tables.calls.between(*part.calls_between(first, end))
                piece.append(TableAside.of(some, aside))
            del part, some  # the next ones are unpacked meanwhile
        for piece in waiting:
            calls = one_table([one.table for one in piece])
            yield replace(self, tables=self.tables._replace(calls=calls))
            del calls

    def _of_ranks(self, lot: slice) -> Block:
        """Return that of some ranks, with all of their calls."""
        ranks, steps = self.ranks[lot], self.tables.steps
        kinds: tuple[Kind, ...] = ("calls",)
        calls = tables_of([one.chunks for one in ranks], self._number, kinds).calls
        steps = replace(steps, edges=steps.edges[lot.start : lot.stop + 1])
        tables = self.tables._replace(calls=calls, steps=steps)
        return Block(self.numbers, ranks, self.rows[lot], tables)

    @property
    def time_ns(self) -> Integers:
        """What each step took each rank, ``(ranks, steps)``, without evaluation inside of it."""
        time: Integers = self.tables.steps.rows.time_ns[self.at]
        return time

    @property
    def blocked_ns(self) -> Integers:
        """How much of each step each rank was blocked by others, ``(ranks, steps)``."""
        blocked: Integers = self.tables.steps.rows.blocked_ns[self.at]
        return blocked

    @property
    def gc_ns(self) -> Integers:
        """How much of each step each rank collected garbage, ``(ranks, steps)``."""
        collecting: Integers = self.tables.steps.rows.gc_ns[self.at]
        return collecting

    @property
    def total_own_ns(self) -> Integers:
        """The own work of each rank in each step, ``(ranks, steps)``."""
        return self.time_ns - self.blocked_ns

    def chunk(self, rank: int) -> StepsChunk:
        """Return what a rank did, by its index in `ranks`."""
        return self.tables.chunk(rank)


def _in_both(one: Integers, other: Integers) -> Integers:
    if np.array_equal(one, other):
        return one
    return np.intersect1d(one, other, assume_unique=True)
