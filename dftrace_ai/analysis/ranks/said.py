"""What a process of a job says, read here or by a worker of an executor, and kept beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.analysis.ranks.kept import write_kept
from dftrace_ai.analysis.ranks.measured import partial_of
from dftrace_ai.analysis.ranks.packing import packed
from dftrace_ai.analysis.steps import measure_blocked
from dftrace_ai.analysis.steps.processes import STEP_ROLES
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dftrace_ai.analysis.ranks.partials import Place, RankPartial
    from dftrace_ai.analysis.reading.index_file import TracedFile
    from dftrace_ai.analysis.steps import Job, Process
    from dftrace_ai.analysis.steps.job import JobPart
    from dftrace_ai.analysis.steps.processes import FileFacts


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
