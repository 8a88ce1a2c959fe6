"""The processes of a job in the hands of an executor: part by part, what is undecided here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from dftrace_ai.analysis.executors.lots import Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.steps.job import Job, JobPart, Rank
    from dftrace_ai.analysis.steps.processes import FileFacts, Process

Made = TypeVar("Made")


class _OfPart(NamedTuple, Generic[Made]):
    """What was made of a part of a job; nothing where others decide what is in it."""

    made: Made | None
    trains: bool
    files: Mapping[int, FileFacts]


def made_elsewhere(
    job: Job, make: Callable[[Iterable[Rank | Process]], Made], spread: Spread
) -> list[Made]:
    """Have an executor make something of the parts of a job; of what nobody could read, nothing.

    `make` goes through some ranks and processes, each of which is let go of before the next is
    asked for. What it returns can be put together in any order; both go by pickle. A `TraceError`
    is as of `Spread.each`.
    """
    parts = job.parts()
    found = spread.each(_made, [Piece((part, make), part.traces) for part in parts])
    here: set[Hashable] = set()
    trains = False
    for part, of_part in zip(parts, found, strict=True):
        if of_part is None:
            job.leave_out(part)
            continue
        job.take(of_part.files)
        trains |= of_part.trains
        if of_part.made is None:
            here.add(part.host)
    # A host of which a part is not decided by itself is looked at as a whole.
    whole = [make(job.of_hosts(here, shown=trains))] if here else []
    of_parts = (
        of_part.made
        for part, of_part in zip(parts, found, strict=True)
        if of_part is not None and of_part.made is not None and part.host not in here
    )
    return [*whole, *of_parts]


def _made(given: tuple[JobPart, Callable[[Iterable[Rank | Process]], Made]]) -> _OfPart[Made]:
    part, make = given
    members = part.members()
    made = None if members is None else make(members)
    return _OfPart(made, part.trains, part.files)
