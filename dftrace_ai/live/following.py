"""A job that runs, followed to its end by what its processes write, without their noticing."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dftrace_ai._native as _native
from dftrace_ai.analysis.otlp.recordings import Recording
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.search import deleted_told
from dftrace_ai.analysis.reading.trace_set import LEAST_DIGITS, open_folders
from dftrace_ai.errors import TraceError
from dftrace_ai.spools.completing import Leavings
from dftrace_ai.trace_format.file_names import RUN_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dftrace_ai.analysis.otlp.messages import Resource, Span
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.where import Where
    from dftrace_ai.spools.completing import LeftSpool
    from dftrace_ai.spools.recovery import Recovery

# Between the end of processes and the start of others of the job.
GRACE_S: Final = 5.0
# Who starts processes again that have died, for longer than that.
STARTS_AGAIN: Final = "torchrun"
# Whether one of another host lives is known by what it writes.
SILENT_S: Final = 60.0
# Looking takes this share of the time at most.
LOOKS_APART: Final = 20
LOOK_S: Final = 0.5


class FollowedJob:
    """What the processes of a job write, until none of them runs.

    Args:
        paths: directories of traces; or what finds them, which is asked until a job runs.
        run: the job, by its folder or the beginning of its name; None for the newest that runs.
        where: which spans are told.
        deep: what lies below these directories is looked at, too.

    Attributes:
        runs: the runs that are followed, by the beginning of their names; none before one is seen.
        recordings: processes by the paths of their traces without suffix.
    """

    def __init__(
        self,
        paths: Sequence[Path] | Callable[[], Sequence[Path]],
        run: str | None = None,
        where: Where | None = None,
        *,
        deep: bool = True,
    ) -> None:
        self.runs: set[str] = set()
        self.recordings: dict[tuple[Path, str], Recording] = {}
        self._find = paths if callable(paths) else None
        self._paths = [] if callable(paths) else list(paths)
        self._wanted = run
        self._where = where
        self._deep = deep
        self._folder = ""
        self._seen = self._read = time.monotonic()
        self._next_look = self._next_search = 0.0
        self._runs_now = False
        self._launchers: set[int] = set()
        # A job that comes and goes between two looks is known by what it leaves.
        self._before = {trace.said.run for trace in self._traces()}

    @property
    def silent_s(self) -> float:
        """For how many seconds no process has run."""
        return time.monotonic() - self._seen

    def runs_on(self) -> bool:
        """Return whether processes of the job run, or may be about to be started again."""
        now = time.monotonic()
        if now >= self._next_look:
            running = [one for one in self._left() if self._is_running(one)]
            if not self.runs and running:
                newest = max(running, key=lambda one: one.began_ns)
                self._take(newest.folder)
            self.runs |= {one.run for one in running if one.folder == self._folder}
            # As long as their launcher is there, others may come in the place of the dead.
            self._launchers -= {pid for pid in self._launchers if _native.process_gone(pid, 0)}
            self._runs_now = any(one.run in self.runs for one in running) or bool(self._launchers)
            took = time.monotonic() - now
            self._next_look = now + max(LOOK_S, took * LOOKS_APART)
            if self._runs_now:
                self._seen = time.monotonic()
        return self._runs_now or self.silent_s < GRACE_S

    def _take(self, folder: str) -> None:
        self._folder = folder
        if self._find is not None:
            self._find, self._paths = None, [Path(folder)]

    @property
    def paths(self) -> list[Path]:
        """The directories that are looked at."""
        if self._find is not None:
            self._paths = list(self._find())
        return self._paths

    def _left(self) -> list[LeftSpool]:
        return Leavings(self.paths, deep=self._deep).all()

    def _is_running(self, spool: LeftSpool) -> bool:
        if self._wanted and not self._is_wanted(spool.run, spool.folder):
            return False
        if spool.state == "other host":
            return time.monotonic() - self._read < SILENT_S
        return spool.state == "alive"

    def _is_wanted(self, run: str, folder: str) -> bool:
        wanted = self._wanted or ""
        by_name = len(wanted) >= LEAST_DIGITS and run.startswith(wanted[:RUN_DIGITS])
        return by_name or Path(folder).name == Path(wanted).name

    def read(self, *, last: bool = False) -> Iterator[tuple[Resource, list[Span]]]:
        """Yield what was written since; `last`: to the end of all files."""
        now = time.monotonic()
        if last or now >= self._next_search:
            self._search()
            took = time.monotonic() - now
            self._next_search = now + max(LOOK_S, took * LOOKS_APART)
        for recording in self.recordings.values():
            for spans in recording.read(last=last):
                self._read = time.monotonic()
                yield recording.resource, spans

    def _traces(self) -> list[Trace]:
        opened = open_traces if self._deep else open_folders
        paths = self.paths
        with suppress(TraceError):  # nothing is written yet
            return list(opened(paths)) if paths else []
        return []

    def _search(self) -> None:
        for trace in self._traces():
            run = trace.said.run
            if not self.runs and run and run not in self._before:
                folder = str(trace.path.parent)
                if not self._wanted or self._is_wanted(run[:RUN_DIGITS], folder):
                    self._take(folder)
                    self._seen = time.monotonic()
                    self.runs.add(run[:RUN_DIGITS])
            if (run or "")[:RUN_DIGITS] not in self.runs:
                continue
            known = self.recordings.get(trace.recording)
            if known is None:
                known = Recording(trace, self._where, live=True)
                self.recordings[trace.recording] = known
                self._launchers |= _launcher_of(trace)
            known.add(trace)

    def complete(self) -> Recovery:
        """Complete the traces of processes that died."""
        return Leavings(self.paths, deep=self._deep).complete(self.runs)

    @property
    def deleted(self) -> list[str]:
        """What was deleted before it could be read, a line for each process."""
        return deleted_told([recording.files for recording in self.recordings.values()])


def _launcher_of(trace: Trace) -> set[int]:
    """Return the process that starts one again, where it can be seen from here."""
    said = trace.said
    with suppress(OSError):
        here = _native.host_name(), Path("/proc/self/ns/pid").stat().st_ino
        if said.launcher == STARTS_AGAIN and (said.host, said.pid_namespace) == here:
            return {said.ppid} if said.ppid and said.ppid > 1 else set()
    return set()
