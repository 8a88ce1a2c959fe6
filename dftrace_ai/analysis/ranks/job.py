"""What all ranks of a job say, and the steps that they have in common, a block at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.measured import layout_of, partial_of
from dftrace_ai.analysis.ranks.partials import Place
from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.reading.identity import MOST_RANKS
from dftrace_ai.analysis.steps import Job, Rank, measure
from dftrace_ai.analysis.texts import few
from dftrace_ai.errors import TraceError
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.ranks.partials import RankPartial, StepsChunk
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.identity import Owner


class Block(NamedTuple):
    """Steps that all ranks of a job have: of each rank the chunk in which they lie."""

    numbers: Integers  # what the steps are called, in order
    ranks: tuple[RankPartial, ...]
    chunks: tuple[StepsChunk, ...]  # of each rank
    rows: Integers  # (ranks, steps): the row of each step in the chunk of each rank

    @property
    def time_ns(self) -> Integers:
        """What each step took each rank, ``(ranks, steps)``, without evaluation inside of it."""
        return np.stack([chunk.steps.time_ns[row] for chunk, row in self._pairs()])

    @property
    def blocked_ns(self) -> Integers:
        """How much of each step each rank was blocked by others, ``(ranks, steps)``."""
        return np.stack([chunk.steps.blocked_ns[row] for chunk, row in self._pairs()])

    @property
    def total_own_ns(self) -> Integers:
        """The own work of each rank in each step, ``(ranks, steps)``."""
        return self.time_ns - self.blocked_ns

    @property
    def start_ns(self) -> Integers:
        """When each step began, by the clock of each rank, ``(ranks, steps)``."""
        return np.stack([chunk.steps.start_ns[row] for chunk, row in self._pairs()])

    @property
    def end_ns(self) -> Integers:
        """When each step ended, by the clock of each rank, ``(ranks, steps)``."""
        return np.stack([chunk.steps.end_ns[row] for chunk, row in self._pairs()])

    def own_ns(self, rank: int) -> Integers:
        """Return the own work of a rank by step and name, ``(steps, names + 1)``.

        Args:
            rank: its index in `ranks`, whose names these are; what is not annotated is the last.
        """
        own = self.chunks[rank].own_ns(len(self.ranks[rank].names))
        here: Integers = own[self.rows[rank]]
        return here

    def _pairs(self) -> Iterator[tuple[StepsChunk, Integers]]:
        return zip(self.chunks, self.rows, strict=True)


@dataclass(frozen=True, repr=False)
class RanksOfJob:
    """The ranks of a job, whatever the order in which they were read.

    Attributes:
        ranks: what each says, by its number.
        missing: numbers of ranks that the job has and that no trace is of.
        notes: what is to be told of the files, one line each.
    """

    ranks: tuple[RankPartial, ...]
    missing: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, partials: Iterable[RankPartial], notes: Iterable[str] = ()) -> RanksOfJob:
        """Put ranks together, in any order; of two runs, or one there twice, is a TraceError."""
        given = sorted(partials, key=lambda one: one.place.rank)
        _check(given)
        ranks = [one for one in given if one.step_count]
        notes = list(notes)
        if len(ranks) < len(given):
            none = [one.place.rank for one in given if not one.step_count]
            notes.append(f"no steps were found in traces of ranks {few(none)}")
        seen = {one.place.rank for one in ranks}
        world = max((one.place.world_size or 0 for one in ranks), default=0)
        missing = tuple(rank for rank in range(min(world, MOST_RANKS)) if rank not in seen)
        told = (note for one in ranks for note in one.notes)
        return cls(tuple(ranks), missing, tuple(dict.fromkeys((*sorted(notes), *told))))

    @property
    def common(self) -> Integers:
        """The numbers of the steps that all ranks have, in order."""
        found = [block.numbers for block in self.blocks()]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def blocks(self) -> Iterator[Block]:
        """Yield the steps that all ranks have, by their numbers, a chunk of each rank at a time."""
        if not self.ranks:
            return
        numbers = set.intersection(*(set(one.chunks) for one in self.ranks))
        for number in sorted(numbers):
            if (block := self.block(number)) is not None:
                yield block

    def block(self, number: int) -> Block | None:
        """Return the steps that all ranks have in the chunks of a number; None for none."""
        if not all(number in one.chunks for one in self.ranks):
            return None
        chunks = tuple(one.chunks[number] for one in self.ranks)
        common = reduce(_in_both, (chunk.steps.number for chunk in chunks))
        if not len(common):
            return None
        rows = np.stack([np.searchsorted(one.steps.number, common) for one in chunks])
        return Block(common, self.ranks, chunks, rows)


def _in_both(one: Integers, other: Integers) -> Integers:
    if np.array_equal(one, other):
        return one
    return np.intersect1d(one, other, assume_unique=True)


def _of_several(runs: list[str]) -> TraceError:
    some = ", ".join(run or "one without a name" for run in runs[:3])
    return TraceError(f"traces of {counted(len(runs), 'run')}: {some}; give those of one")


def _check(ranks: list[RankPartial]) -> None:
    runs = sorted({one.place.run for one in ranks})
    if len(runs) > 1:
        raise _of_several(runs)
    for one, other in pairwise(one.place for one in ranks):
        if one.rank == other.rank:
            raise TraceError(f"rank {one.rank} is there twice: process {one.pid} and {other.pid}")


def read_ranks(traces: TraceSet, *, attempt: int | None = None) -> RanksOfJob:
    """Read what the ranks of a job say: of each its last start, or one by its number from 1.

    Raises:
        TraceError: there are several runs, a rank twice or none, or none was started so often.
    """
    owners = traces.owners
    runs = [run.id for run in owners.known_runs]
    if len(runs) > 1:
        raise _of_several(runs)
    if attempt is not None:
        files = owners.of_start(attempt)
        if not files:
            starts = max(owner.start for owner in owners.all)
            raise TraceError(f"no rank was started {counted(attempt, 'time')}: {starts} at most")
        traces = TraceSet(files, traces.skipped)
    job = Job(traces)
    found: list[RankPartial] = []
    nameless: list[RankPartial] = []
    for member in job:
        if not isinstance(member, Rank):
            continue
        owner = owners.of(member.process.owner.files[0])
        place = place_of(owner, owners.run_of(owner))
        told = partial_of(member.process, measure(member.process), place)
        (nameless if member.process.header.rank is None else found).append(told)
        del member
    if not found and len(nameless) == 1:
        return RanksOfJob.of(nameless, job.facts.notes)  # a training by itself
    notes = list(job.facts.notes)
    if nameless:
        some = "a process" if len(nameless) == 1 else f"{len(nameless):,} processes"
        notes.append(f"{some} with steps and no rank: left out")
    if not found:
        raise TraceError("no rank: no trace of a training says which rank it is of")
    return RanksOfJob.of(found, notes)


def place_of(owner: Owner, run: str) -> Place:
    """Return where a process runs, by its files."""
    header = owner.header
    footers = (trace.end.footer for trace in owner.files)
    layouts = (header.layout, *(footer.layout for footer in footers if footer is not None))
    return Place(
        rank=header.rank or 0,
        world_size=header.world_size,
        host=header.node or header.host or "",
        clock=header.boot_id or owner.host,
        local_rank=header.local_rank,
        layout=layout_of(next(filter(None, layouts), None)),
        run=run,
        start=owner.start,
        pid=header.pid or 0,
        cpus=header.cpus,
    )
