"""Before traces are read: those of processes that died are completed from their spools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.recovery import Recovery

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
    for finished in found.finished:
        complain(f"completed {finished}, whose process had died")
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
    from dftrace_ai.recovery import Recovery, adopt_dead

    directories: set[Path] = set()
    for path in paths:
        directories.update(_directories_with_runs(path))
    found = Recovery([], [], [], [])
    for directory in sorted(directories):
        for all_of_them, some in zip(
            found, adopt_dead(directory, spool_dir=spool_dir), strict=True
        ):
            all_of_them.extend(some)
    return found


def _directories_with_runs(path: Path) -> set[Path]:
    """Return the directories at or below a path, or around a file, where a run may have ended."""
    from dftrace_ai.analysis.files import SUFFIXES
    from dftrace_ai.spool_search import MARKER_SUFFIX, SPOOL_SUFFIX

    # os.path, since a name may be too long, and pathlib raises where this says no.
    if not os.path.isdir(path):  # noqa: PTH112
        return {path.parent} if os.path.isdir(path.parent) else set()  # noqa: PTH112
    traces_of_runs = (MARKER_SUFFIX, SPOOL_SUFFIX, *SUFFIXES)
    return {path} | {
        Path(folder)
        for folder, _, names in os.walk(path)
        if any(name.endswith(traces_of_runs) for name in names)
    }
