"""Completing what dead processes left at or below the paths that somebody names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dftrace_ai.spools.held_directory import directories_at
from dftrace_ai.spools.recovery import Recovery, adopt_in
from dftrace_ai.trace_format.file_names import is_of_a_run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["complete_directories"]


def complete_directories(
    paths: Iterable[Path], spool_dir: Path | None = None, *, anew: bool = False
) -> Recovery:
    """Complete what dead processes left at or below some paths.

    Args:
        paths: directories, and trace files, which stand for the directory around them.
        spool_dir: where to look for spools besides the usual places.
        anew: where a trace is gone, or was cut, another file gets what its spool holds.

    Returns:
        What became of all the spools.

    Example::

        print(complete_directories([Path("out")]).finished)
    """
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
                if given or any(map(is_of_a_run, names)):
                    if identity not in seen:
                        found.add(adopt_in(directory, spool_dir=spool_dir, anew=anew))
                    seen.add(identity)
                if not is_directory:
                    break
        except OSError:
            continue  # no directory: who reads the traces complains of it
    return found
