"""Before traces are read: those of processes that died are completed from their spools."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dftrace_ai.spools.recovery import Recovery

__all__ = ["RECOVER_HELP", "complete_dead_traces", "complete_directories"]

RECOVER_HELP = (
    "Complete the traces of processes that died first. Without it nothing is written to the "
    "directory, and what is only in a spool is not counted."
)


def complete_dead_traces(paths: Iterable[Path]) -> None:
    """Complete what dead processes left, and say so on the standard error stream.

    Args:
        paths: trace files and directories, as given to a command; what does not
            exist is left for the command to complain of.

    Example::

        complete_dead_traces([Path("out")])
    """
    from dftrace_ai.cli.terminal import complain

    found = complete_directories(paths)
    whole = set(found.ended_in_order)
    for finished in found.finished:
        # How a process ended is not known, only that it did not complete its trace.
        if finished not in whole:
            complain(f"completed {finished}, which its process had not")
    for damage in found.damaged:
        complain(f"damaged, left out: {damage}", loud=True)
    for failure in found.failed:
        complain(f"not completed: {failure}", loud=True)


def complete_directories(paths: Iterable[Path], spool_dir: Path | None = None) -> Recovery:
    """Complete what dead processes left at or below some paths.

    Args:
        paths: directories, and trace files, which stand for the directory around them.
        spool_dir: where to look for spools besides the usual places.

    Returns:
        What became of all the spools.

    Example::

        print(complete_directories([Path("out")]).finished)
    """
    from dftrace_ai.analysis.reading.files import SUFFIXES
    from dftrace_ai.spools.held_directory import directories_at
    from dftrace_ai.spools.recovery import Recovery, adopt_in
    from dftrace_ai.spools.search import MARKER_SUFFIX, SPOOL_SUFFIX

    traces_of_runs = (MARKER_SUFFIX, SPOOL_SUFFIX, *SUFFIXES)
    found = Recovery.nothing()
    seen: set[tuple[int, int]] = set()
    for path in sorted(set(paths)):
        # os.path, since a name may be too long, and pathlib raises where this says no.
        is_directory = os.path.isdir(path)  # noqa: PTH112
        top = path if is_directory else path.parent
        try:
            for directory, names in directories_at(top):
                info = os.fstat(directory.descriptor)
                identity = (info.st_dev, info.st_ino)
                given = directory.path == os.fspath(top)
                if given or any(name.endswith(traces_of_runs) for name in names):
                    if identity not in seen:
                        found.add(adopt_in(directory, spool_dir=spool_dir))
                    seen.add(identity)
                if not is_directory:
                    break
        except OSError:
            continue  # no directory: the command complains of it
    return found
