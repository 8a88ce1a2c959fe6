"""What traced processes are doing now, read from their spools.

Looking costs them nothing: no lock is taken and nothing is written. Processes that have
died are shown as they were at the last::

    from dftrace_ai.live import find_stuck, snapshot

    for process in snapshot(["out"]).processes:
        print(process.label, process.state, [span.label for span in process.place])
"""

from __future__ import annotations

from dftrace_ai.live.dumped_stacks import with_stacks
from dftrace_ai.live.jobs import Job, jobs_of
from dftrace_ai.live.model import (
    HiddenProcess,
    OpenSpanStatus,
    RankStatus,
    Snapshot,
    StackFrame,
    ThreadStack,
    ThreadStatus,
    WaitedFor,
)
from dftrace_ai.live.observer import Observer, snapshot
from dftrace_ai.live.saved import read_snapshot, snapshot_json
from dftrace_ai.live.stuck import Finding, JobVerdict, Mark, Verdict, find_stuck, judge

__all__ = [
    "Finding",
    "HiddenProcess",
    "Job",
    "JobVerdict",
    "Mark",
    "Observer",
    "OpenSpanStatus",
    "RankStatus",
    "Snapshot",
    "StackFrame",
    "ThreadStack",
    "ThreadStatus",
    "Verdict",
    "WaitedFor",
    "find_stuck",
    "jobs_of",
    "judge",
    "read_snapshot",
    "snapshot",
    "snapshot_json",
    "with_stacks",
]
