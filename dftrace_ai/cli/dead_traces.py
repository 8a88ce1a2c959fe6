"""Before traces are read: which are given, and those of processes that died are completed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.trace_format.running import RunningProcess

__all__ = ["NOTHING", "PATHS_HELP", "Completed", "Paths", "Recover", "complete_dead_traces"]

INCOMPLETE: Final = 1

PATHS_HELP = "Trace files, patterns for them in quotes, and directories and archives to search."

RECOVER_HELP = (
    "Complete the traces of processes that died first. Without it nothing is written to the "
    "directory, and what is only in a spool is not counted."
)

Paths = Annotated[list[Path], typer.Argument(metavar="PATHS...", help=PATHS_HELP)]
Recover = Annotated[bool, typer.Option(help=RECOVER_HELP)]


class Completed(NamedTuple):
    """What became of the spools beside the traces."""

    running: list[RunningProcess]
    """Processes that still run, and have not written all that they have recorded."""
    waiting: int
    """Events of the dead that could not be written: they are in their spools, and in no figure."""

    @property
    def losses(self) -> dict[str, int]:
        """The count as a summary has others."""
        return {"waiting": self.waiting} if self.waiting else {}

    def told(self) -> list[str]:
        """Return what is to be said of what waits."""
        if not self.waiting:
            return []
        events = counted(self.waiting, "event")
        verb = "waits" if self.waiting == 1 else "wait"
        what = f"{events} {verb} in spools, which 'dftrace recover' writes"
        return [f"LOST for these figures: {what}"]

    def end(self) -> None:
        """End the command with the status of one that could not read all, if it could not.

        Raises:
            typer.Exit: events wait.
        """
        if self.waiting:
            raise typer.Exit(INCOMPLETE)


NOTHING: Final = Completed([], 0)


def complete_dead_traces(paths: Iterable[Path]) -> Completed:
    """Complete what dead processes left, and say so on the standard error stream.

    Args:
        paths: trace files, directories and patterns, as given to a command; what does not
            exist is left for the command to complain of.

    Returns:
        What is in spools and in no trace.

    Raises:
        TraceError: nothing matches a pattern.

    Example::

        complete_dead_traces([Path("out")])
    """
    from dftrace_ai.analysis.reading.gathering.patterns import matching_paths
    from dftrace_ai.cli.terminal import complain, shown_progress
    from dftrace_ai.spools.completing import complete_directories

    given = matching_paths(paths)
    with shown_progress("completing traces of processes that died"):
        found = complete_directories(given)
    whole = set(found.ended_in_order)
    for finished in found.finished:
        # How a process ended is not known, only that it did not complete its trace.
        if finished not in whole:
            complain(f"completed {finished}, which its process had not")
    for damage in found.damaged:
        complain(f"damaged, left out: {damage}", loud=True)
    for failure in found.failed:
        complain(f"not completed: {failure}", loud=True)
    if not found.alive and not found.waiting:
        return NOTHING
    from dftrace_ai.spools.unwritten import processes_that_run, waiting_events

    completed = Completed(processes_that_run(found.alive, given), waiting_events(found.waiting))
    for told in completed.told():
        complain(told, loud=True)
    return completed
