"""Who has been waiting for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.live.causes import with_causes
from dftrace_ai.live.jobs import is_replaced, jobs_of
from dftrace_ai.live.verdict import JobVerdict, Verdict, finding_of

if TYPE_CHECKING:
    from dftrace_ai.live.jobs import Job
    from dftrace_ai.live.model import HiddenProcess, Snapshot

__all__ = ["find_stuck"]


def find_stuck(snapshot: Snapshot, limit_s: float = 60.0) -> Verdict:
    """Find threads that have been in a span for too long, and what they are likely to wait for.

    A thread is stuck when it has an open span and has for longer than the limit
    neither recorded anything nor opened a span. A rank that died is a finding while
    others of its job live.

    Args:
        snapshot: what the processes are doing.
        limit_s: seconds; a span that may last longer needs a higher limit.

    Returns:
        The verdict, job by job.

    Example::

        verdict = find_stuck(snapshot(["out"]), limit_s=120)
        for job in verdict.jobs:
            print([finding.label for finding in job.findings if finding.cause])
    """
    jobs = tuple(_judged(job, snapshot.hidden, limit_s) for job in jobs_of(snapshot))
    return Verdict(
        stuck=any(job.stuck for job in jobs),
        limit_s=limit_s,
        jobs=jobs,
        hidden=tuple(snapshot.hidden),
        problems=tuple(snapshot.problems),
    )


def _judged(job: Job, hidden: list[HiddenProcess], limit_s: float) -> JobVerdict:
    alive = [process for process in job.processes if process.state == "alive"]
    # In a job without anyone alive nobody waits.
    dead = [process for process in job.processes if process.state == "dead"] if alive else []
    dead = [process for process in dead if not is_replaced(process, alive)]
    waiting = [(process, thread) for process in alive for thread in process.threads if thread.place]
    stuck = [
        finding_of("stuck", process, thread)
        for process, thread in waiting
        if process.quiet_s(thread) > limit_s
    ]
    found = [*(finding_of("dead", process, process.main) for process in dead), *stuck]
    return JobVerdict(
        name=job.name,
        runs=tuple(job.runs),
        stuck=bool(stuck) or any(not process.worker for process in dead),
        processes=len(job.processes),
        alive=len(alive),
        quietest_s=max((process.quiet_s(thread) for process, thread in waiting), default=0.0),
        findings=tuple(with_causes(found, job.processes, hidden) if stuck else found),
    )
