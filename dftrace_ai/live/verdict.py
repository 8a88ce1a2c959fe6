"""What `find_stuck` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dftrace_ai.live.model import HiddenProcess, place_text
from dftrace_ai.trace_format.names_and_phases import own_category

if TYPE_CHECKING:
    from dftrace_ai.live.model import RankStatus, ThreadStatus

__all__ = ["Finding", "JobVerdict", "Verdict"]


@dataclass(frozen=True)
class Finding:
    """A thread that is stuck, a process that died, or a rank that the stuck ones may wait for.

    Attributes:
        what: ``stuck``, ``dead``, ``goes on`` (a rank that is not stuck while others
            wait in a collective) or ``missing`` (a rank that has no process).
        label: what people call the process: ``rank 3``.
        rank: its rank; None where unknown.
        pid: its id; None for a missing rank.
        host: its host; None for a missing rank.
        worker: it is a worker of its rank.
        thread: name of the thread; empty for the main thread.
        path: open spans, outermost first, each as category and name.
        category: that of the innermost open span; empty when none is open, and in the
            body of a loop, outside of all that is annotated there.
        moved_ns: when the thread last recorded something or opened a span,
            nanoseconds since 1970; of a dead process its last sign of life.
        quiet_s: seconds since then.
        epoch: newest value of that argument in the process; None where unknown.
        step: the same.
        cause: why it is likely to be what the others wait for; empty if it is not.
    """

    what: Literal["stuck", "dead", "goes on", "missing"]
    label: str
    rank: int | None
    pid: int | None = None
    host: str | None = None
    worker: bool = False
    thread: str = ""
    path: tuple[str, ...] = ()
    category: str = ""
    moved_ns: int = 0
    quiet_s: float = 0.0
    epoch: int | None = None
    step: int | None = None
    cause: str = ""

    @property
    def place(self) -> str:
        """Where it is: ``comm.all_reduce``, ``the body of dataloader.fetch``; empty for no span."""
        return place_text(self.path[-1]) if self.path else ""


def finding_of(
    what: Literal["stuck", "dead", "goes on"], process: RankStatus, thread: ThreadStatus | None
) -> Finding:
    """Return the finding on a thread of a process, or on a process without any."""
    path = thread.place if thread else []
    moved_ns = process.seen_ns
    if thread and what != "dead":
        moved_ns = process.seen_ns - round(process.quiet_s(thread) * 1e9)
    return Finding(
        what=what,
        label=process.label,
        rank=process.rank,
        pid=process.pid,
        host=process.host,
        worker=process.worker,
        thread="" if thread is None or thread.tid == process.pid else thread.name,
        path=tuple(span.label for span in path),
        category=(own_category(path[-1].name, path[-1].cat) or "") if path else "",
        moved_ns=moved_ns,
        quiet_s=process.quiet_s(thread) if thread and what != "dead" else process.dead_s(),
        epoch=process.epoch,
        step=process.step,
    )


@dataclass(frozen=True)
class JobVerdict:
    """What is wrong with one job.

    Attributes:
        name: stem of its traces, and its run.
        runs: the runs of its ranks, hexadecimal digits.
        stuck: something of it is stuck, or one of its ranks died while others live.
        processes: how many of its processes were looked at.
        alive: how many of these live.
        quietest_s: the longest time that a thread of theirs with an open span has
            recorded nothing.
        findings: the stuck, the dead, and who else the stuck may wait for.
    """

    name: str
    runs: tuple[str, ...]
    stuck: bool
    processes: int
    alive: int
    quietest_s: float
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the jobs of a snapshot.

    Attributes:
        stuck: something is.
        limit_s: seconds of quiet from which on a thread counts as stuck.
        jobs: each job by itself.
        hidden: processes of other hosts, of which nothing is known.
        problems: spools that could not be read.
        kind: ``dftrace verdict``, by which its JSON is known.
        format: version of that.
    """

    stuck: bool
    limit_s: float
    jobs: tuple[JobVerdict, ...]
    hidden: tuple[HiddenProcess, ...]
    problems: tuple[str, ...]
    kind: Literal["dftrace verdict"] = "dftrace verdict"
    format: Literal[1] = 1
