"""Before traces are read: those of processes that died are completed from their spools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["complete_dead_traces"]


def complete_dead_traces(paths: Iterable[Path]) -> None:
    """Complete what dead processes left, and say so on the standard error stream.

    Args:
        paths: trace files and directories, as given to a command; what does not
            exist is left for the command to complain of.

    Example::

        complete_dead_traces([Path("out")])
    """
    from dftrace_ai.cli.terminal import console
    from dftrace_ai.recovery import MARKER_SUFFIX, adopt_dead

    directories: set[Path] = set()
    for path in paths:
        if path.is_dir():
            directories.update(
                Path(folder)
                for folder, _, names in os.walk(path)
                if any(name.endswith(MARKER_SUFFIX) for name in names)
            )
        elif path.parent.is_dir():
            directories.add(path.parent)
    err = console(stderr=True)
    for directory in sorted(directories):
        recovery = adopt_dead(directory)
        for finished in recovery.finished:
            err.print(f"dftrace: completed {finished}, whose process had died", style="yellow")
        for failure in recovery.failed:
            err.print(f"dftrace: not completed: {failure}", style="bold red")
