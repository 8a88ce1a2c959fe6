"""Who has been waiting for too long, and where those stood that died."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

from dftrace_ai.live.causes import with_causes
from dftrace_ai.live.jobs import is_replaced, jobs_of
from dftrace_ai.live.model import NS, OpenSpanStatus
from dftrace_ai.live.verdict import Finding, JobVerdict, Verdict, finding_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.live.jobs import Job
    from dftrace_ai.live.model import HiddenProcess, Snapshot

__all__ = ["died_in", "find_stuck"]

DIED = ("died", "reboot")
# Of a line as the recorder writes it; arguments stand behind.
TIMES = re.compile(rb'"ts":(\d+(?:\.\d+)?)(?:,"dur":(\d+(?:\.\d+)?))?')


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
    dead = [process for process in job.processes if process.state == "dead"]
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
        # In a job without anyone alive nobody waits.
        stuck=bool(stuck) or bool(alive and any(not process.worker for process in dead)),
        processes=len(job.processes),
        alive=len(alive),
        quietest_s=max((process.quiet_s(thread) for process, thread in waiting), default=0.0),
        findings=tuple(with_causes(found, job.processes, hidden) if stuck else found),
    )


def died_in(paths: Iterable[str | os.PathLike[str]]) -> list[Finding]:
    """Return where processes stood that died, as their completed traces tell; by rank."""
    from dftrace_ai.analysis.reading import open_traces
    from dftrace_ai.errors import TraceError

    try:
        findings = [_last_stand(trace) for trace in open_traces(paths)]
    except TraceError:
        return []
    died = [finding for finding in findings if finding is not None]
    return sorted(died, key=lambda one: (one.rank is None, one.rank or 0, one.host, one.pid))


def _last_stand(trace: Trace) -> Finding | None:
    footer, header = trace.end.footer, trace.header
    if footer is None or header is None or footer.ended not in DIED:
        return None
    last_us = float(footer.alive_us or 0)
    unended = []
    for _, line in trace.lines():
        times = TIMES.search(line)
        if times:
            last_us = max(last_us, float(times[1]) + float(times[2] or 0))
        if b'"ph":"B"' in line:
            unended.append(json.loads(line))
    begun = max(unended, key=lambda span: (span["tid"] == header.pid, span["ts"]), default=None)
    stack = [span for span in unended if begun and span["tid"] == begun["tid"]]
    base_us = header.time_base_us or 0
    path = [
        OpenSpanStatus(0, 0, span["name"], span["cat"], round(1e3 * (base_us + span["ts"])), 1)
        for span in sorted(stack, key=lambda span: span["ts"])
    ]
    steps = [span["args"].get("step") for span in stack if "args" in span]
    last_ns = round(1e3 * (base_us + last_us))
    return Finding(
        what="dead",
        label=f"process {header.pid}" if header.rank is None else f"rank {header.rank}",
        rank=header.rank,
        pid=header.pid,
        host=header.host,
        path=tuple(span.label for span in path),
        moved_ns=last_ns,
        quiet_s=max(time.time_ns() - last_ns, 0) / NS,
        step=next((step for step in reversed(steps) if isinstance(step, int)), None),
    )
