"""The runs below a directory: folders that hold traces or markers, and how each of them stands.

Whoever asks for a run names one that was found here; nothing that he says is made a path of.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import dftrace_ai._native as _native
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.search import NOT_SEARCHED
from dftrace_ai.analysis.reading.trace_file import MADE_OF_OTHERS
from dftrace_ai.analysis.reading.trace_set import LAST, of_one_run, open_folders
from dftrace_ai.errors import TraceError
from dftrace_ai.loggers.runs.log_files import LOG
from dftrace_ai.spools.search import lives_without, spool_of_marker
from dftrace_ai.trace_format import file_names
from dftrace_ai.ui.kept import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.ui.answers import State

MOST_DEPTH: Final = 8
MOST_ENTRIES: Final = 500_000
MOST_RUNS: Final = 5000
# To look through it is to take a twentieth of the time at most.
LOOKS_APART: Final = 20
LEAST_APART_S: Final = 1.0
# Of a process that cannot be looked at from here a file that was changed lately tells.
QUIET_S: Final = 120.0
# A log begins before its trace was written last, or by another clock soon after.
LATER_NS: Final = 600 * 10**9


# A file: its name, its size, and when it was changed, nanoseconds since 1970.
Facts: TypeAlias = tuple[str, int, int]

# Logs and their directories, as text, by the number of the process that writes each.
Logs: TypeAlias = "dict[str, list[tuple[str, Facts]]]"


@dataclass(frozen=True)
class FoundRun:
    """A folder with what a run leaves."""

    id: str  # its path below the directory that is shown
    path: Path
    files: tuple[Facts, ...]  # traces
    markers: tuple[Facts, ...]
    # What processes of the same numbers have logged, by directory, the nearest first.
    logs: tuple[tuple[Path, tuple[Facts, ...]], ...] = ()
    thresholds: tuple[str, ...] = ()  # by which it is judged, as `limits_of` takes them

    @cached_property
    def key(self) -> str:
        """What its files are known by, and how they are judged."""
        logs = (log for _, names in self.logs for log in names)
        return key_of([*self.files, *logs], self.thresholds)

    @property
    def names(self) -> list[str]:
        """Names of the traces."""
        return [name for name, _, _ in self.files]

    @property
    def changed_s(self) -> float:
        """When any of its files was changed last."""
        return max((at for *_, at in (*self.files, *self.markers)), default=0) / 1e9

    def standing(self) -> State | None:
        """Return how it stands by the spools that its markers name; None where there are none."""
        # Running while any of its processes is, and dead where one is that nobody has recovered.
        stands: set[State] = set()
        for name, *_ in self.markers:
            state = _state_of(self.path / name)
            if state is not None:
                stands.add(state)
        if "unknown" in stands and time.time() - self.changed_s < QUIET_S:
            return "running"
        order: tuple[State, ...] = ("running", "died", "unknown")
        return next((state for state in order if state in stands), None)


def _state_of(marker: Path) -> State | None:
    spool = spool_of_marker(marker)
    if spool is None or spool.complete or spool.begun or spool.fault:
        return None
    if spool.elsewhere:
        return "unknown"
    try:
        look = _native.look_into(spool.path, 0.0)
    except FileNotFoundError:
        if lives_without(spool.path, spool.place):
            return "running"
        return "died" if spool.place == _native.marker_place() else "unknown"
    except (OSError, ValueError):
        return None  # its process makes it just now, or has ended
    if look["finished"]:
        return None
    if look["state"] == "other host":
        return "unknown"
    return "died" if look["state"] == "dead" else "running"


class RunsBelow:
    """The runs below a directory, looked for again now and then."""

    def __init__(self, root: Path, thresholds: Iterable[str] = ()) -> None:
        self.root = root
        self._thresholds = tuple(thresholds)
        self._runs: dict[str, FoundRun] = {}
        self._more, self._due = 0, 0.0
        self._lock = threading.Lock()

    def all(self, *, now: bool = False) -> tuple[list[FoundRun], int]:
        """Return the runs, what was changed last first, and how many more there are."""
        with self._lock:
            began = time.monotonic()
            if now or began >= self._due:
                found = self._looked()
                self._runs = {run.id: run for run in found[:MOST_RUNS]}
                self._more = max(0, len(found) - MOST_RUNS)
                took_s = time.monotonic() - began
                self._due = began + max(LEAST_APART_S, LOOKS_APART * took_s)
            return list(self._runs.values()), self._more

    def one(self, run_id: str) -> FoundRun | None:
        """Return a run by its id; None for what is none."""
        self.all()
        if run_id not in self._runs:
            self.all(now=True)  # the page may know of it from another look
        return self._runs.get(run_id)

    def _looked(self) -> list[FoundRun]:
        found: list[FoundRun] = []
        logs: Logs = {}
        waiting, left = [(self.root, 0)], MOST_ENTRIES
        for folder, depth in waiting:
            files: list[Facts] = []
            markers: list[Facts] = []
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            break
                        if entry.is_dir(follow_symlinks=False):
                            hidden = entry.name.startswith(".") or entry.name in NOT_SEARCHED
                            if depth < MOST_DEPTH and not hidden:
                                waiting.append((folder / entry.name, depth + 1))
                        elif entry.name.endswith(file_names.MARKER_SUFFIX):
                            markers += _facts(entry)
                        elif file_names.is_trace(entry.name) or entry.name.endswith(
                            file_names.PROFILE_SUFFIXES
                        ):
                            files += _facts(entry)
                        elif LOG.fullmatch(entry.name):
                            of_pid = logs.setdefault(entry.name.split("-")[1], [])
                            of_pid += [(f"{folder}/", facts) for facts in _facts(entry)]
            except OSError:
                continue  # it is gone, or closed to the user
            if files or markers:
                own = (tuple(sorted(files)), tuple(markers))
                found.append(FoundRun(self._id(folder), folder, *own, thresholds=self._thresholds))
        found = [_with_logs(run, logs) for run in found] if logs else found
        return sorted(found, key=lambda run: (run.changed_s, run.id), reverse=True)

    def _id(self, folder: Path) -> str:
        below = "." if folder == self.root else str(folder.relative_to(self.root))
        # A name is bytes, and JSON has letters.
        return below.encode("utf-8", "backslashreplace").decode()


def _facts(entry: os.DirEntry[str]) -> list[Facts]:
    try:
        if not entry.is_file(follow_symlinks=False):
            return []
        info = entry.stat(follow_symlinks=False)
    except OSError:
        return []  # it is gone
    return [(entry.name, info.st_size, info.st_mtime_ns)]


def _with_logs(run: FoundRun, logs: Logs) -> FoundRun:
    """Return a run with the logs of processes of the same numbers, which come again."""
    pids = _pids([name for name, *_ in (*run.files, *run.markers)])
    left = [log for pid in pids for log in logs.get(pid, ())]
    chosen: dict[str, list[Facts]] = {}
    for above in (run.path, *run.path.parents):
        inside = str(above / "_")[:-1]
        here = [log for log in left if log[0].startswith(inside)]
        left = [log for log in left if not log[0].startswith(inside)]
        if above == run.path and here:
            left = []  # logs of its own leave no doubt
        elif above == run.path:
            # In containers all runs have the same: what began when it was over is of others.
            last_ns = run.changed_s * 1e9 + LATER_NS
            left = [log for log in left if begun_ns(log[1][0]) <= last_ns]
        for folder, facts in sorted(here):
            chosen.setdefault(folder, []).append(facts)
        if not left:
            break
    found = ((Path(folder), tuple(facts)) for folder, facts in chosen.items())
    return replace(run, logs=tuple(found))


def begun_ns(log: str) -> int:
    """Return when a log begins, nanoseconds since 1970, by its name."""
    return int(log.removesuffix(".jsonl").rsplit("-", 1)[1])


def _pids(names: Iterable[str]) -> set[str]:
    """Return the numbers of processes at the ends of names of traces."""
    found = set()
    for name in names:
        last = (
            file_names.marker_base(file_names.without_suffix(name))
            .partition(".part")[0]
            .rsplit("-", 1)[-1]
        )
        if last.isdigit():
            found.add(last)
    return found


def opened_run(folder: Path, names: Sequence[str]) -> TraceSet:
    """Open the newest run of a folder, and nothing that lies below it."""
    if any(map(file_names.is_recorded, names)):
        found = of_one_run(open_folders([folder]), LAST)
    else:
        traces = [name for name in names if file_names.is_trace(name)]
        found = open_traces([folder / name for name in traces or names], LAST)
    if all(trace.file.merged for trace in found):
        raise TraceError(f"{found.files[0]}: {MADE_OF_OTHERS}")
    return found
