"""What all ranks of a job say, and the steps that they have in common, a block at a time."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from dftrace_ai.analysis.endings import breaks_off, ends_told, fewer_steps
from dftrace_ai.analysis.executors.lots import Piece
from dftrace_ai.analysis.ranks.blocks import Block
from dftrace_ai.analysis.ranks.kept import Kept, read_kept, write_kept
from dftrace_ai.analysis.ranks.measured import layout_of, partial_of
from dftrace_ai.analysis.ranks.packing import (
    FEWEST_IN_THREADS,
    KINDS,
    THREADS,
    PackedChunks,
    Spill,
    packed,
    tables_of,
)
from dftrace_ai.analysis.ranks.partials import UNTOLD, Place, RankPartial
from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.reading.identity import MOST_RANKS
from dftrace_ai.analysis.reading.index_file import IndexFileError, TracedFile, identity_of
from dftrace_ai.analysis.reading.trace_end import are_whole
from dftrace_ai.analysis.reading.unranked import unranked_told
from dftrace_ai.analysis.steps import Job, Process, measure_blocked
from dftrace_ai.analysis.steps.processes import STEP_ROLES
from dftrace_ai.analysis.texts import few
from dftrace_ai.errors import TraceError
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.ranks.packing import Kind
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.identity import Owner
    from dftrace_ai.analysis.steps.job import JobPart
    from dftrace_ai.analysis.steps.processes import FileFacts

# Of so many bytes on it is worth it to keep what ranks say: they are read in seconds.
LARGE_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, repr=False)
class RanksOfJob:
    """The ranks of a job, whatever the order in which they were read."""

    ranks: tuple[RankPartial, ...]  # what each says, by its number
    missing: tuple[int, ...] = ()  # numbers of ranks that the job has and that no trace is of
    notes: tuple[str, ...] = ()  # what is to be told of the files, one line each
    # A rank did not end in order: in the last step that all have others may have waited for it.
    breaks_off: bool = False

    @classmethod
    def of(
        cls,
        partials: Iterable[RankPartial],
        notes: Iterable[str] = (),
        *,
        breaks_off: bool = False,
    ) -> RanksOfJob:
        """Put ranks together, in any order; of two runs, or one there twice, is a TraceError."""
        given = sorted(partials, key=lambda one: one.place.rank)
        _check(given)
        ranks = _staged([one for one in given if one.step_count])
        notes = list(notes)
        if len(ranks) < len(given):
            none = [one.place.rank for one in given if not one.step_count]
            notes.append(f"no steps were found in traces of ranks {few(none)}")
        notes += fewer_steps({one.place.rank: one.step_count for one in ranks})
        seen = {one.place.rank for one in ranks}
        world = max((one.place.world_size or 0 for one in ranks), default=0)
        missing = tuple(rank for rank in range(min(world, MOST_RANKS)) if rank not in seen)
        told = (note for one in ranks for note in one.notes)
        return cls(tuple(ranks), missing, tuple(dict.fromkeys((*sorted(notes), *told))), breaks_off)

    @cached_property
    def chunks(self) -> frozenset[int]:
        """The numbers of the chunks that all ranks have, of which there is one at least."""
        return frozenset.intersection(*(frozenset(one.chunks) for one in self.ranks))

    @property
    def common(self) -> Integers:
        """The numbers of the steps that all ranks have, in order."""
        found = [block.numbers for block in self.blocks("steps")]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    @property
    def pipeline(self) -> tuple[int, int] | None:
        """How many stages there are, and forward passes of each in a step; None for no pipeline."""
        stages = [-1 if one.place.stage is None else one.place.stage for one in self.ranks]
        passes = sorted(one.passes for one in self.ranks)[(len(self.ranks) - 1) // 2]
        is_one = min(stages) >= 0 and len(set(stages)) > 1 and passes > 0
        return (max(stages) + 1, passes) if is_one else None

    @property
    def has_calls(self) -> bool:
        """Whether any rank tells of a collective or message."""
        return any(
            one.chunks.calls > 0
            if isinstance(one.chunks, PackedChunks)
            else any(len(chunk.calls.name) for chunk in one.chunks.values())
            for one in self.ranks
        )

    @property
    def files(self) -> tuple[int, ...]:
        """Descriptors of what else another process needs to read the steps of a copy by pickle."""
        chunks = (one.chunks for one in self.ranks)
        sources = (one.source for one in chunks if isinstance(one, PackedChunks))
        found = {source.file for source in sources if isinstance(source, Spill)}
        return tuple(file for file in found if file is not None)

    def blocks(self, *kinds: Kind) -> Iterator[Block]:
        """Yield the steps that all ranks have, by their numbers, a chunk of each rank at a time.

        Of other `kinds` than are asked for chunks have no rows; the fewer, the sooner they are
        read. By default all are.
        Nothing here holds a block: who lets go of it before asking for the next has one in memory.
        """
        if not self.ranks:
            return iter(())
        numbers = sorted(self.chunks)
        # What is done with steps and spans takes less than to read them, by as many threads.
        if len(self.ranks) < FEWEST_IN_THREADS or (kinds and "calls" not in kinds):
            return filter(None, (self.block(number, *kinds) for number in numbers))
        return filter(None, self._ahead(numbers, kinds))

    def _ahead(self, numbers: list[int], kinds: tuple[Kind, ...]) -> Iterator[Block | None]:
        """Yield blocks of which each is read while somebody looks at the one before it."""
        coming: deque[Future[Block | None]] = deque()
        with ThreadPoolExecutor(1) as pool:
            for number in numbers:
                coming.append(pool.submit(self.block, number, *kinds))
                if len(coming) > 1:
                    yield coming.popleft().result()
            yield from (coming.popleft().result() for _ in tuple(coming))

    def block(self, number: int, *kinds: Kind) -> Block | None:
        """Return the steps that all ranks have in the chunks of a number; None for none."""
        if number not in self.chunks:
            return None
        chunks = [one.chunks for one in self.ranks]
        return Block.of(self.ranks, tables_of(chunks, number, kinds or KINDS))


def _staged(ranks: list[RankPartial]) -> list[RankPartial]:
    """Return ranks with the stages that their messages tell, where nothing else says them."""
    told = {one.stage for one in ranks}
    if UNTOLD in told or len(told) < 2 or any(one.place.stage is not None for one in ranks):
        return ranks
    return [
        replace(one, place=one.place._replace(layout=(*one.place.layout, ("pp", one.stage))))
        for one in ranks
    ]


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


def read_ranks(
    traces: TraceSet, *, attempt: int | None = None, spread: Spread | None = None
) -> RanksOfJob:
    """Read what the ranks of a job say: of each its last start, or one by its number from 1.

    Where it is `spread` over readers, these keep nothing beside the traces. TraceError: there are
    several runs, a rank twice or none, or none was started so often.
    """
    return _Reading(traces, attempt, "large" if spread is None else "none", spread).job()


class KeptRanks(NamedTuple):
    """What became of keeping what ranks say."""

    made: int  # of how many processes it was put down
    left_out: tuple[str, ...]  # why of others it was not, a line each


def keep_ranks(traces: TraceSet, spread: Spread | None = None) -> KeptRanks:
    """Keep what the ranks of jobs say for `read_ranks`; TraceError: a rank is there twice."""
    made, left_out = 0, []
    for run in traces.owners.known_runs:
        of_run = TraceSet(run.files)
        if len({owner.header.rank for owner in of_run.owners.all} - {None}) > 1:
            reading = _Reading(of_run, None, "all", spread)
            RanksOfJob.of(reading.ranks())  # none is there twice
            made += reading.kept
            left_out += reading.left_out
    return KeptRanks(made, tuple(sorted(left_out)))


class _Reading:
    """Reads ranks: what is kept beside their traces, and the traces of the others."""

    def __init__(
        self,
        traces: TraceSet,
        attempt: int | None,
        keep: Literal["none", "large", "all"],
        spread: Spread | None,
    ) -> None:
        self._spread = spread
        owners = self._owners = traces.owners
        runs = [run.id for run in owners.known_runs]
        if len(runs) > 1:
            raise _of_several(runs)
        files = owners.last if attempt is None else owners.of_start(attempt)
        if not files:
            starts = max(owner.start for owner in owners.all)
            raise TraceError(
                f"no rank was started {counted(attempt or 1, 'time')}: {starts} at most"
            )
        self._chosen = files
        # Of one that is not the last nothing is to be told of others.
        self._traces = traces if attempt is None else TraceSet(files, traces.skipped)
        size = sum(trace.file.content.stat().st_size for trace in files)
        is_remote = any(trace.file.is_remote for trace in files)
        self._keeps = not is_remote and (keep == "all" or (keep == "large" and size >= LARGE_BYTES))
        self._spill = Spill()
        # The files of processes of which something may be kept, as they were before they were read.
        self._before: dict[int, list[TracedFile]] = {}
        self._any_kept = False
        self._nameless: list[tuple[Owner, RankPartial]] = []
        self.kept = 0
        self.left_out: list[str] = []

    def job(self) -> RanksOfJob:
        """Return all ranks of the job."""
        ranks = self.ranks()
        notes = [*self._job.facts.notes, *(self._spread.left_out if self._spread else ())]
        notes += ends_told(self._traces.owners)
        if len(self._nameless) == 1 and not ranks:
            alone = (partial for _, partial in self._nameless)
            return RanksOfJob.of(alone, notes)  # a training by itself
        notes += unranked_told(self._owners, (owner for owner, _ in self._nameless))
        if not ranks:
            raise TraceError(f"no rank: {self._why_none()}")
        return RanksOfJob.of(ranks, notes, breaks_off=breaks_off(self._traces.owners))

    def _why_none(self) -> str:
        """Return why nothing that was read is what a rank says."""
        if self._nameless:
            return f"{len(self._nameless):,} processes train, and none says which rank it is of"
        owners = [self._owners.of(trace) for trace in self._chosen]
        ranks = {owner.header.rank for owner in owners} - {None}
        if not ranks:
            return "no trace is of a training, and none says which rank it is of"
        of = f"rank {next(iter(ranks))}" if len(ranks) == 1 else f"{len(ranks):,} ranks"
        start = max(owner.start for owner in owners)
        if not are_whole(self._job.facts.notes):
            return f"the traces of {of} are not whole, and have no step that can be judged"
        if start < 2:
            return f"the traces of {of} have no step of a training"
        return (
            f"the traces of {of} have no step of a training in start {start}; "
            f"--attempt {start - 1} reads the one before"
        )

    def ranks(self) -> list[RankPartial]:
        """Return what all ranks say, in any order."""
        numbers = sorted({self._owners.of(trace).number for trace in self._chosen})
        chosen = [self._owners.all[number] for number in numbers]
        with ThreadPoolExecutor(THREADS) as pool:
            kept = [*pool.map(self._kept, chosen)]
        self._any_kept = any(kept)
        rest = [owner for owner, one in zip(chosen, kept, strict=True) if one is None]
        files = sorted((trace for one in rest for trace in one.files), key=lambda one: one.path)
        ranks = [one.partial for one in kept if one is not None and one.partial is not None]
        known = {
            trace.path: reach
            for owner, one in zip(chosen, kept, strict=True)
            if one is not None
            for trace, reach in zip(owner.files, one.reaches, strict=True)
        }
        job = self._job = Job(self._traces, only=files, known=known)
        read = self._read_elsewhere(self._spread, rest) if self._spread else None
        if read is None:
            read = job.each(self._read, THREADS)
        return [*ranks, *filter(None, read)]

    def _read_elsewhere(
        self, spread: Spread, owners: Sequence[Owner]
    ) -> list[RankPartial | None] | None:
        """Return what processes say that others have read; None where none of these trains."""
        parts = [self._job.part_of(owner) for owner in owners]
        pieces = [
            Piece((part, self._asked(owner)), owner.files)
            for part, owner in zip(parts, owners, strict=True)
        ]
        found = spread.each(said_elsewhere, pieces, self._held_of)
        trained: list[tuple[Owner, Said]] = []
        for part, owner, of_owner in zip(parts, owners, found, strict=True):
            if of_owner is None:
                self._job.leave_out(part)
                continue
            self._job.take(of_owner.files)
            for trains, said in of_owner.said:
                self._note(said)
                if trains:
                    trained.append((owner, said))
        if not trained and not self._any_kept:
            self.kept = 0
            self.left_out.clear()
            return None
        return [self._taken(owner, said) for owner, said in trained]

    def _kept(self, owner: Owner) -> Kept | None:
        if not owner.is_known or owner.header.run is None:
            return None
        found = self._beside(owner)
        if found is not None and found.partial is not None and owner.header.rank is None:
            found = None  # kept when it was taken for the rank that it says
        # What is still written to would be made again each time.
        if found is None and self._keeps and all(trace.end.footer for trace in owner.files):
            self._before[owner.number] = [identity_of(trace) for trace in owner.files]
        return found

    def _beside(self, owner: Owner) -> Kept | None:
        try:
            return read_kept(owner.files, self._place(owner), self._spill)
        except IndexFileError:
            return None  # it is made again

    def _place(self, owner: Owner) -> Place:
        return place_of(owner, self._owners.run_of(owner))

    def _asked(self, owner: Owner) -> Asked:
        return Asked(self._place(owner), self._any_kept, self._before.get(owner.number))

    def _read(self, process: Process, trains: bool) -> RankPartial | None:
        owner = self._owners.of(process.owner.files[0])
        said = self._held(said_of(process, self._job, self._asked(owner), trains=trains))
        self._note(said)
        return self._taken(owner, said)

    def _note(self, said: Said) -> None:
        self.kept += said.is_kept
        if said.left_out is not None:
            self.left_out.append(said.left_out)

    def _held_of(self, of_owner: SaidElsewhere) -> SaidElsewhere:
        said = tuple((trains, self._held(one)) for trains, one in of_owner.said)
        return of_owner._replace(said=said)

    def _held(self, said: Said) -> Said:
        """Return what a process says, where it takes the least memory until all have been read."""
        if said.partial is None or said.is_kept or not said.has_rank:
            return said
        return said._replace(partial=self._spill.packed(said.partial))

    def _taken(self, owner: Owner, said: Said) -> RankPartial | None:
        """Return what a rank says; what is kept is read from there."""
        if said.partial is None:
            return None
        if not said.has_rank:
            self._nameless.append((owner, said.partial))
            return None
        if not said.is_kept:
            return said.partial
        kept = self._beside(owner)
        if kept is not None and kept.partial is not None:
            return kept.partial
        return self._spill.packed(said.partial)


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
        clock_offset_ns=header.clock_offset_ns,
    )


class Asked(NamedTuple):
    """How a process is read."""

    place: Place
    # Passes through a model alone make no rank of it, for there are such with steps.
    steps_only: bool
    # Its files as they were before they were read, where it is kept beside them what it says.
    before: Sequence[TracedFile] | None


class Said(NamedTuple):
    """What a process says, and what became of keeping that."""

    partial: RankPartial | None
    has_rank: bool = True
    is_kept: bool = False
    left_out: str | None = None  # why it is not


class SaidElsewhere(NamedTuple):
    """What each process of an owner says, if it trains, and what is known of their files."""

    said: tuple[tuple[bool, Said], ...]
    files: Mapping[int, FileFacts]


def said_of(process: Process, job: Job, asked: Asked, *, trains: bool) -> Said:
    """Return what a process says, and keep it."""
    if not trains:
        return _kept(process, job, asked, Said(None))
    if asked.steps_only and not process.spans.has(*STEP_ROLES).any():
        return Said(None)
    partial = partial_of(process, measure_blocked(process), asked.place)
    if process.header.rank is None:
        return Said(partial, has_rank=False)
    return _kept(process, job, asked, Said(partial))


def _kept(process: Process, job: Job, asked: Asked, said: Said) -> Said:
    tells = process.spans.has(*STEP_ROLES, "forward", "backward").any()
    reaches = job.reaches(process)
    if asked.before is None or (said.partial is None and tells) or reaches is None:
        return said
    try:
        write_kept(process.owner.files, asked.before, said.partial, reaches)
    except TraceError as error:
        return said._replace(left_out=str(error))  # nothing may be written there
    return said._replace(is_kept=True)


def said_elsewhere(given: tuple[JobPart, Asked]) -> SaidElsewhere:
    """Return what the processes of an owner say, in few bytes."""
    part, asked = given

    def said(process: Process, trains: bool) -> Said:
        found = said_of(process, part.job, asked, trains=trains)
        if found.partial is None:
            return found
        # What is kept is read from there.
        chunks = {} if found.is_kept else packed(found.partial).chunks
        return found._replace(partial=replace(found.partial, chunks=chunks))

    return SaidElsewhere(tuple(part.each(said)), part.files)
