"""What commands that read traces do before and after, each call of them.

The steps, in their order, are those of `Reading`: the traces of the dead are completed, a bar
shows how far it is, traces are opened, what is missing is warned of, and the exit status says so,
too.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from dftrace_ai import recorder
from dftrace_ai.cli.terminal import complain, shown_progress
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.wording import counted, shell_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from dftrace_ai.analysis.ranks.clock_offsets import Clocks
    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.reading.search import Folder
    from dftrace_ai.cli.readers import Readers
    from dftrace_ai.live import Observer
    from dftrace_ai.spools.completing import LeftSpool
    from dftrace_ai.trace_format.running import RunningProcess

FAILED: Final = 1
CLOCKS_UNSURE: Final = 3
MOST_HOSTS: Final = 16

# Of a store, as a path has it.
URL: Final = re.compile(r"[a-z][a-z0-9+.-]+:/.*", re.DOTALL)


NOTHING_HERE: Final = (
    "there are no traces below the current directory; dftrace run SCRIPT makes some, or name "
    "where they are"
)


def within(clocks: Clocks, max_error: str | None, *, certain: bool) -> None:
    """End with status 3, hosts named, where clocks are known less well than asked for: ``1ms``.

    `certain`: by what a clock is off at most, not by what it usually is.
    """
    if max_error is None:
        return
    from dftrace_ai.analysis.reading.time_window import parsed_length_us

    bad = clocks.beyond(round(parsed_length_us(max_error) * 1000), certain=certain)
    for host in bad[:MOST_HOSTS]:
        complain(f"clock of {host}")
    if bad:
        more = f", of which {MOST_HOSTS} are named" if len(bad) > MOST_HOSTS else ""
        complain(f"{counted(len(bad), 'clock')} not known to within {max_error}{more}")
        raise typer.Exit(CLOCKS_UNSURE)


def folders_here() -> list[Path]:
    """Return the folders below the current directory with what a run leaves."""
    return [folder.path for folder in _found_here()]


def watched_here() -> list[Path]:
    """Return those in which processes may run, else the one that was written last."""
    folders = _found_here()
    marked = [folder.path for folder in folders if folder.marked]
    if not marked:
        complain(f"looking at {folders[0].path}, what was written last below the current directory")
    return marked or [folders[0].path]


def _found_here() -> list[Folder]:
    from dftrace_ai.analysis.reading.search import MOST_ENTRIES, Below, folders_of_runs
    from dftrace_ai.spools.answering import Asking

    found = Asking[Below]("the current directory").answer(lambda: folders_of_runs(Path()))
    if found.cut:
        more = f" and of {counted(len(found.cut) - 1, 'folder')} more" if found.cut[1:] else ""
        complain(
            f"not all of {found.cut[0]}{more} was looked at: no more than {MOST_ENTRIES:,} files "
            "and folders are below the current directory; name the folder of a run that lies there"
        )
    if not found.folders:
        raise TraceError(NOTHING_HERE)
    return found.folders


def tell_watched(observer: Observer) -> None:
    """Say which of several runs is looked at."""
    from dftrace_ai.live.wording import others_text

    if told := others_text(observer.run, observer.other_runs):
        complain(f"looking at {told}")


def _tell_of_spools(given: Iterable[Path]) -> None:
    """Say where processes have left events, or write them now, which are not read here."""
    from dftrace_ai.analysis.reading.search import folders_of_runs

    for path in given:
        folders = folders_of_runs(path).folders if os.path.isdir(path) else []  # noqa: PTH112
        if any(one.marked for one in folders):
            complain(f"{path}: events of processes that run or died are not read here", loud=True)


class Reading:
    """A call of a command that reads traces, begun by completing those of the dead if asked to.

    `compared`: not one run is read, but two. `waiting` counts events of the dead that could not be
    written: they are in no figure. `skipped` has lines for files that were no traces, once these
    are opened. `takes_merged`: what was made of traces for a viewer is opened, too, where it is
    given alone.
    """

    def __init__(
        self,
        paths: Sequence[Path] | None,
        *,
        recover: bool,
        run: str | None = None,
        compared: bool = False,
        readers: Readers | None = None,
        takes_merged: bool = False,
    ) -> None:
        self._readers = readers
        self._takes_merged = takes_merged
        self._run = run or "last"
        self._compared = compared
        self._older = 0
        self._found: dict[tuple[Path, ...], TraceSet] = {}
        self._is_here = not paths
        self.paths = [_located(path) for path in paths or self._newest_here()]
        if readers is not None and readers.are_elsewhere:
            self.paths = [path.absolute() for path in self.paths]
        for path in self.paths:
            if path.suffix == ".py":
                call = f"dftrace run {shell_word(str(path))}"
                raise DftraceError(f"{path} is a script, and no trace; {call} records one")
        self.running: list[RunningProcess] = []
        self.waiting = 0
        self.skipped: list[str] = []
        if recover:
            self._complete_dead_traces()

    def _newest_here(self) -> list[Path]:
        """Return the folders of the newest runs below the current directory."""
        from dftrace_ai.analysis.reading.search import newest_folders

        folders = _found_here()
        taken = [each.path for each in folders] if self._run == "all" else newest_folders(folders)
        self._older = len(folders) - len(taken)
        return taken

    def _complete_dead_traces(self) -> None:
        from dftrace_ai.analysis.reading.search import matching_paths

        # What does not exist is left for the command to complain of.
        here = [path for path in self.paths if URL.fullmatch(str(path)) is None]
        if not here:
            return  # processes leave their spools on a machine
        given = matching_paths(here, and_beside=True)
        if recorder.lack():
            _tell_of_spools(given)
            return
        from dftrace_ai.spools.completing import Leavings, processes_that_run, waiting_events

        leavings = Leavings(given, deep=not self._is_here)
        with shown_progress("completing traces of processes that died"):
            spools = leavings.clear()
            if self._run == "all":
                spools.add(leavings.complete())
            else:
                left = leavings.all()
                done: set[str] = set()
                # What is completed may tell that another run is the newest.
                while left and (wanted := self._runs_to_read(left, done) - done):
                    spools.add(leavings.complete(wanted))
                    done |= wanted
                    self._found.clear()
        whole = set(spools.ended_in_order)
        for finished in spools.finished:
            # How a process ended is not known, only that it did not complete its trace.
            if finished not in whole:
                complain(f"completed {finished}, which its process had not")
        for damage in spools.damaged:
            complain(f"damaged, left out: {damage}", loud=True)
        for failure in spools.failed:
            complain(f"not completed: {failure}", loud=True)
        if not spools.alive and not spools.waiting:
            return
        self.running = processes_that_run(spools.alive, given)
        self.waiting = waiting_events(spools.waiting)
        for note in self.waiting_notes():
            complain(note, loud=True)

    def _runs_to_read(self, left: Sequence[LeftSpool], done: set[str]) -> set[str]:
        """Return the runs to be read that spools are left of, by the beginning of their names."""
        # Of those that are read; and of one that has only spools yet, if it may be that.

        written: set[str] = set()
        chosen: list[TraceSet] = []
        with suppress(TraceError):  # nothing is written yet; or who reads it tells
            written = _runs_of(self._opened(self.paths, "all"))
            chosen = self._chosen()
        runs = {run for one in chosen for run in _runs_of(one)}
        unwritten = [spool for spool in left if spool.run and spool.run not in written | done]
        if self._run == "last":
            known = [run for one in chosen for run in one.owners.known_runs]
            newest = max(unwritten, key=lambda spool: spool.began_ns, default=None)
            # Of two runs that are compared one of two may be missing.
            is_whole = newest is not None and len(known) > self._compared
            since_ns = min(run.began_ns for run in known) if is_whole else -1
            if newest is not None and newest.began_ns > since_ns:
                # Ranks that no launcher has given a name in common are of a run each.
                beside = (spool for spool in unwritten if spool.folder == newest.folder)
                runs |= {spool.run for spool in beside if spool.began_ns > since_ns}
        else:
            runs |= {
                spool.run
                for spool in unwritten
                if spool.run.startswith(self._run[: len(spool.run)])
                or Path(self._run).name == Path(spool.folder).name
            }
        # Markers that name none are told of.
        return (runs | {""}) & {spool.run for spool in left}

    def waiting_notes(self) -> list[str]:
        """Return what is to be said of what waits."""
        if not self.waiting:
            return []
        verb = "waits" if self.waiting == 1 else "wait"
        what = f"{counted(self.waiting, 'event')} {verb} in spools, which 'dftrace recover' writes"
        return [f"LOST for these figures: {what}"]

    @property
    def losses(self) -> dict[str, int]:
        """What waits as a summary has other losses."""
        return {"waiting": self.waiting} if self.waiting else {}

    def progress(self, what: str = "reading") -> AbstractContextManager[None]:
        """Show how much of the files has been read, where it takes long."""
        return shown_progress(what, self.paths, self._readers.read_bytes if self._readers else None)

    @cached_property
    def traces(self) -> TraceSet:
        """What was given; a directory's files that are no traces are `skipped`."""
        (traces,) = self._read()
        self.skipped = [f"skipped: {file}" for file in traces.skipped]
        self._tell_which(traces)
        return traces

    def last_two(self) -> tuple[TraceSet, TraceSet]:
        """Return the newest run of each of two paths; else the last but one and the last."""
        found = self._read()
        if len(self.paths) == 2 and not self._is_here:
            for path, traces in zip(self.paths, found, strict=True):
                if traces.other_runs:
                    self._tell_which(traces)
                traces.run = traces.run or str(path)
        elif len(found) < 2:
            place = self._place if self._is_here else f"in {self.paths[0]}"
            raise TraceError(f"there is one run {place}; name the other one")
        else:
            complain(f"comparing the last two runs: {found[0].run}, and {found[1].run}")
        before, after = found
        return before, after

    def _read(self) -> list[TraceSet]:
        try:
            chosen = self._chosen()
        except TraceError as error:
            raise TraceError("; ".join([str(error), *self._unread_told()])) from error
        merged = [trace for traces in chosen for trace in traces if trace.file.merged]
        if merged and not self._takes_merged:
            from dftrace_ai.analysis.reading.trace_file import MADE_OF_OTHERS

            raise TraceError(
                f"{merged[0]}: {MADE_OF_OTHERS}; name those that it was made of; dftrace view "
                "opens it"
            )
        if left_out := [path for found in self._found.values() for path in found.left_out]:
            more = f", and {len(left_out) - 1:,} more" if len(left_out) > 1 else ""
            complain(f"left out, made of other traces by dftrace merge: {left_out[0]}{more}")
        return chosen

    def _unread_told(self) -> Iterator[str]:
        """Yield what is to be said of processes that have only spools."""
        if recorder.lack():
            return
        from dftrace_ai.spools.completing import Leavings

        there = [path for path in self.paths if os.path.isdir(path)]  # noqa: PTH112
        left = Leavings(there, deep=not self._is_here).all()
        where = " ".join(shell_word(str(path)) for path in there)
        dead = sum(spool.state == "dead" for spool in left)
        alive = sum(spool.state == "alive" for spool in left)
        if dead:
            processes = "process" if dead == 1 else "processes"
            what = f"{dead:,} {processes} died there, with all events in spools"
            yield f"{what}: dftrace recover {where}"
        if alive:
            runs = "process runs" if alive == 1 else "processes run"
            yield f"{alive:,} {runs} there, with nothing written yet: dftrace top {where}"

    @property
    def _place(self) -> str:
        return "below the current directory" if self._is_here else "of these"

    def _chosen(self) -> list[TraceSet]:
        """Return the run that is read, or, the earlier first, the two that are compared."""
        from dftrace_ai.analysis.reading.trace_set import last_runs

        if not self._compared:
            return [self._opened(self.paths, self._run)]
        if len(self.paths) == 2 and not self._is_here:
            return [self._opened([path], self._run) for path in self.paths]
        return last_runs(self._opened(self.paths, "all"))

    def _opened(self, paths: Sequence[Path], run: str) -> TraceSet:
        from dftrace_ai.analysis.reading import open_traces
        from dftrace_ai.analysis.reading.trace_set import of_one_run, open_folders
        from dftrace_ai.trace_format.file_names import is_recorded

        found = self._found.get(tuple(paths))
        if found is None and self._is_here:
            # In others nothing is written yet.
            here = [path for path in paths if any(map(is_recorded, _names_in(path)))]
            found = open_folders(here or paths[:1])
        elif found is None:
            found = open_traces(paths)
        self._found[tuple(paths)] = found
        return of_one_run(found, run)

    def _tell_which(self, traces: TraceSet) -> None:
        others = traces.other_runs + self._older
        if not self._is_here and not others:
            return
        name = traces.run or str(traces.files[0].path.parent)
        what = f"reading {name}, the newest run {self._place}" if self._run == "last" else ""
        if self._run == "all" or (not what and not others):
            return
        more = f"; {counted(others, 'older one')}: --run ID, or --run all" if others else ""
        complain(f"{what or f'reading {name}'}{more if what else ''}")

    def warn(self, notes: Iterable[object]) -> None:
        """Write notes to the error stream, in red where events were lost."""
        for note in notes:
            complain(note, loud=": LOST " in str(note))

    def end(self, *, failed: bool = False) -> None:
        """End the command: with status 1 where faults were found, or not all could be read."""
        if failed or self.waiting:
            raise typer.Exit(FAILED)


def _located(path: Path) -> Path:
    """Return a path, that of a store as it was written: paths have one stroke where it has two."""
    if URL.match(str(path)) is None:
        return path
    from dftrace_ai.analysis.reading.remote import remote_path

    return remote_path(path) or path


def _runs_of(traces: TraceSet) -> set[str]:
    """Return the runs of traces, as the names of spools have them."""
    from dftrace_ai.trace_format.file_names import RUN_DIGITS

    runs = (owner.header.run for owner in traces.owners.all)
    return {run[:RUN_DIGITS] for run in runs if run}


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []  # it went away, or nobody may list it
