"""Which processes belong to one job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.trace_format.file_names import RUN_DIGITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.live.model import RankStatus, Snapshot


@dataclass
class Job:
    """The ranks of a job, and their workers.

    Attributes:
        processes: ranks in their order, each with its workers behind it.
    """

    processes: list[RankStatus]

    @property
    def runs(self) -> list[str]:
        """The runs they belong to: one, or one of each rank."""
        return sorted({process.run for process in self.processes})

    @property
    def name(self) -> str:
        """Stem of the traces, and the run where there is one: ``training, run 3f2a9c01``."""
        stem = self.processes[0].prefix.rpartition("/")[2]
        return f"{stem}, run {self.runs[0][:8]}" if len(self.runs) == 1 else stem

    def takes(self, other: Job) -> bool:
        """Whether the ranks of another run are other ranks of this job.

        Ranks that no launcher has given a name for their run begin one each. They
        write traces of the same stem, know of the same number of ranks, are not twice
        the same rank, and have lived at the same time.
        """
        mine, others = self.processes[0], other.processes[0]
        if mine.world_size is None or mine.world_size != others.world_size:
            return False
        if mine.prefix != others.prefix or self._ranks() & other._ranks():
            return False
        return self._last_ns() >= other._first_ns() and other._last_ns() >= self._first_ns()

    def _ranks(self) -> set[int | None]:
        return {process.rank for process in self.processes}

    def _first_ns(self) -> int:
        return min(process.started_ns or process.seen_ns for process in self.processes)

    def _last_ns(self) -> int:
        return max(process.seen_ns for process in self.processes)


def jobs_of(snapshot: Snapshot) -> list[Job]:
    """Sort the processes of a snapshot by job.

    Returns:
        The jobs, by the time at which they began.

    Example::

        for job in jobs_of(snapshot(["out"])):
            print(job.name, len(job.processes))
    """
    runs: dict[str, list[RankStatus]] = {}
    for process in snapshot.processes:
        runs.setdefault(process.run, []).append(process)
    jobs: list[Job] = []
    for job in sorted(map(Job, runs.values()), key=Job._first_ns):
        for known in jobs:
            if known.takes(job):
                known.processes.extend(job.processes)
                break
        else:
            jobs.append(job)
    for job in jobs:
        job.processes.sort(key=_order)
    return jobs


class OneJob(NamedTuple):
    """A snapshot of one job, what that is called among several, and how many others there are."""

    snapshot: Snapshot
    run: str = ""
    others: int = 0


def of_one_job(snapshot: Snapshot, which: str) -> OneJob:
    """Return what a snapshot has of one job: ``last`` for the newest of those that run, or by name.

    Raises:
        TraceError: there is no such run.
    """
    jobs = jobs_of(snapshot)
    if which == "all" or (len(jobs) < 2 and which == "last"):
        return OneJob(snapshot)
    from dftrace_ai.analysis.reading.trace_set import called_by_folder, place_of

    folders = [{_folder_of(process) for process in job.processes} for job in jobs]
    called = called_by_folder(folders, [job.runs[0] for job in jobs])
    if which == "last":
        # One that died is the newest only where nothing runs.
        at = max(range(len(jobs)), key=lambda at: (bool(ranks_alive(jobs[at].processes)), at))
    else:
        at = place_of(which, [job.runs for job in jobs], called)
    # What is hidden may be a rank whose run has a name of its own.
    others = {run[:RUN_DIGITS] for job in jobs if job is not jobs[at] for run in job.runs}
    return OneJob(
        replace(
            snapshot,
            processes=jobs[at].processes,
            hidden=[one for one in snapshot.hidden if one.run not in others],
            waited_for=[one for one in snapshot.waited_for if one.run in jobs[at].runs],
        ),
        called[at],
        len(jobs) - 1,
    )


def _folder_of(process: RankStatus) -> str:
    """Return the folder of a process's traces, by its path from here where it lies below."""
    folder = Path(process.prefix).parent
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def _order(process: RankStatus) -> tuple[bool, int, str, bool, int]:
    return (process.rank is None, process.rank or 0, process.host, process.worker, process.pid)


def with_workers(processes: Sequence[RankStatus]) -> list[RankStatus]:
    """Tell the workers: processes that another one of the same rank has started.

    That is seen by their parent, or, where something between has started them, by
    their being younger while the other one lives.
    """
    groups: dict[tuple[str, str, int | None], list[RankStatus]] = {}
    for process in processes:
        groups.setdefault((process.host, process.run, process.rank), []).append(process)
    marked = []
    for group in groups.values():
        pids = {process.pid for process in group}
        parents = {process.parent_pid for process in group} & pids
        roots = [process for process in group if process.parent_pid not in pids]
        for process in group:
            worker = process not in roots or (
                process.rank is not None
                and process.pid not in parents
                and any(_began_before(other, process) for other in roots)
            )
            marked.append(replace(process, worker=worker))
    return marked


def _began_before(one: RankStatus, other: RankStatus) -> bool:
    began = one.started_ns or 0, one.pid
    return began < (other.started_ns or 0, other.pid) and one.seen_ns >= (other.started_ns or 0)


def is_replaced(dead: RankStatus, alive: Sequence[RankStatus]) -> bool:
    """Whether a rank that died has been started again."""
    return any(
        one.rank == dead.rank and not one.worker and (one.started_ns or 0) > dead.seen_ns
        for one in alive
        if dead.rank is not None and not dead.worker
    )


def ranks_alive(processes: Sequence[RankStatus]) -> list[RankStatus]:
    """Return those that are no workers and live."""
    return [one for one in processes if one.state == "alive" and not one.worker]
