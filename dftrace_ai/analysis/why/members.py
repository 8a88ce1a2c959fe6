"""The processes of a job judged one after the other, here or wherever an executor has workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.analysis.executors.lots import Piece
from dftrace_ai.analysis.steps import Rank, measure
from dftrace_ai.analysis.why.judging import Others, judge_rank

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.limits import Limits
    from dftrace_ai.analysis.steps import Job, Process
    from dftrace_ai.analysis.steps.job import JobPart
    from dftrace_ai.analysis.steps.processes import FileFacts
    from dftrace_ai.analysis.why.judging import JudgedRank


class Judged(NamedTuple):
    """Judged ranks, and what other processes show."""

    ranks: list[JudgedRank]
    others: Others


class _JudgedPart(NamedTuple):
    """What was found out of a part of a job; nothing where others decide what is in it."""

    judged: Judged | None
    trains: bool
    files: Mapping[int, FileFacts]


def judged_of(members: Iterable[Rank | Process], limits: Limits) -> Judged:
    """Judge processes, each of which is let go of before the next is asked for."""
    judged = Judged([], Others())
    for member in members:
        if isinstance(member, Rank):
            judged.ranks.append(judge_rank(member, measure(member.process, whole=False), limits))
        else:
            judged.others.add(member)
        del member
    return judged


def judged_elsewhere(job: Job, limits: Limits, spread: Spread) -> Judged:
    """Judge the processes of a job by an executor: as `judged_of`, in any order."""
    parts = job.parts()
    found = spread.each(_judge, [Piece((part, limits), part.traces) for part in parts])
    here: set[Hashable] = set()
    trains = False
    for part, of_part in zip(parts, found, strict=True):
        if of_part is None:
            job.leave_out(part)
            continue
        job.take(of_part.files)
        trains |= of_part.trains
        if of_part.judged is None:
            here.add(part.host)
    # A host of which a part is not decided by itself is looked at as a whole.
    judged = judged_of(job.of_hosts(here, shown=trains), limits)
    for part, of_part in zip(parts, found, strict=True):
        if of_part is not None and of_part.judged is not None and part.host not in here:
            judged.ranks.extend(of_part.judged.ranks)
            judged.others.merge(of_part.judged.others)
    return judged


def _judge(given: tuple[JobPart, Limits]) -> _JudgedPart:
    part, limits = given
    members = part.members()
    judged = None if members is None else judged_of(members, limits)
    return _JudgedPart(judged, part.trains, part.files)
