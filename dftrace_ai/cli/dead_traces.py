"""Before traces are read: which are given, and those of processes that died are completed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.trace_format.running import RunningProcess

__all__ = ["PATHS_HELP", "Paths", "Recover", "complete_dead_traces"]

PATHS_HELP = "Trace files, patterns for them in quotes, and directories and archives to search."

RECOVER_HELP = (
    "Complete the traces of processes that died first. Without it nothing is written to the "
    "directory, and what is only in a spool is not counted."
)

Paths = Annotated[list[Path], typer.Argument(metavar="PATHS...", help=PATHS_HELP)]
Recover = Annotated[bool, typer.Option(help=RECOVER_HELP)]


def complete_dead_traces(paths: Iterable[Path]) -> list[RunningProcess]:
    """Complete what dead processes left, and say so on the standard error stream.

    Args:
        paths: trace files, directories and patterns, as given to a command; what does not
            exist is left for the command to complain of.

    Returns:
        The processes that still run, and have not written all that they have recorded.

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
    if not found.alive:
        return []
    from dftrace_ai.spools.unwritten import processes_that_run

    return processes_that_run(found.alive, given)
