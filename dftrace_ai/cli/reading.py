"""What commands that read traces share: options of several commands, and the steps of each call.

An option of several commands is declared here, once, and named by each that has it. The steps, in
their order, are those of `Reading`: the traces of the dead are completed, a bar shows how far it
is, traces are opened, what is missing is warned of, and the exit status says so, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dftrace_ai.cli.terminal import complain, shown_progress
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.trace_format.running import RunningProcess

FAILED: Final = 1

PATHS_HELP = "Trace files, patterns for them in quotes, and directories and archives to search."

RECOVER_HELP = (
    "Complete the traces of processes that died first. Without it nothing is written to the "
    "directory, and what is only in a spool is not counted."
)


THRESHOLDS_HELP = (
    "From which share on something is a finding, and from which a critical one, such as "
    "input=0.1,0.25. Names: input, comm, "
    "transfer, checkpoint, optimizer, other, host, not-annotated, evaluation, start-up, warm-up, "
    "loop-start, between, slower, periodic, two-kinds, slow-step, memory, compute; and, which are "
    "no shares, slow-step-ms, warm-up-ms, start-up-ms, start-up-run-s, loops-ms, not-annotated-ms, "
    "slower-ms, memory-mb, rhythm, steps. May be given again."
)


def json_option(says: str) -> Any:
    """Return the option `--json` of a command, with what its help says it prints."""
    return typer.Option("--json", help=says)


def csv_option(says: str) -> Any:
    """Return the option `--csv` of a command, likewise."""
    return typer.Option("--csv", help=says)


def out_option(metavar: str, says: str) -> Any:
    """Return the option `--out` of a command, with what its help says it writes."""
    return typer.Option("--out", "-o", metavar=metavar, help=says)


def top_option(says: str) -> Any:
    """Return the option `--top` of a command, with what its help says are its rows."""
    return typer.Option("--top", min=1, metavar="N", help=says)


def where_option(says: str) -> Any:
    """Return the option `--where` of a command, with what its help says a condition is about."""
    return typer.Option(
        "--where",
        metavar="CONDITION",
        help=f"{says}; = != < > <= >= like in; and, or, not. Given again, all have to hold.",
    )


def force_option(says: str) -> Any:
    """Return the option `--force` of a command, with what its help says it replaces."""
    return typer.Option("--force", help=says)


def not_together(given: Mapping[str, bool]) -> None:
    """Refuse a call in which two of these options are given."""
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise typer.BadParameter(f"{names[0]} and {names[1]} cannot be given together")


Paths = Annotated[list[Path], typer.Argument(metavar="PATHS...", help=PATHS_HELP)]
Recover = Annotated[bool, typer.Option(help=RECOVER_HELP)]
Json = Annotated[bool, json_option("Print JSON instead of text.")]
Thresholds = Annotated[
    list[str] | None, typer.Option("--threshold", metavar="NAME=W[,C]", help=THRESHOLDS_HELP)
]


class Reading:
    """A call of a command that reads traces, begun by completing those of the dead if asked to.

    `waiting` counts events of the dead that could not be written: they are in no figure. `skipped`
    has lines for files that were no traces, once these are opened.
    """

    def __init__(self, paths: Sequence[Path], *, recover: bool) -> None:
        self.paths = paths
        self.running: list[RunningProcess] = []
        self.waiting = 0
        self.skipped: list[str] = []
        if recover:
            self._complete_dead_traces()

    def _complete_dead_traces(self) -> None:
        from dftrace_ai.analysis.reading.search import matching_paths
        from dftrace_ai.spools.completing import (
            complete_directories,
            processes_that_run,
            waiting_events,
        )

        # What does not exist is left for the command to complain of.
        given = matching_paths(self.paths, and_beside=True)
        with shown_progress("completing traces of processes that died"):
            spools = complete_directories(given)
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
        return shown_progress(what, self.paths)

    def open(self) -> TraceSet:
        """Open what was given; a directory's files that are no traces are `skipped`."""
        from dftrace_ai.analysis.reading import open_traces

        traces = open_traces(self.paths)
        self.skipped = [f"skipped: {file}" for file in traces.skipped]
        return traces

    def warn(self, notes: Iterable[object]) -> None:
        """Write notes to the error stream, in red where events were lost."""
        for note in notes:
            complain(note, loud=": LOST " in str(note))

    def end(self, *, failed: bool = False) -> None:
        """End the command: with status 1 where faults were found, or not all could be read."""
        if failed or self.waiting:
            raise typer.Exit(FAILED)
