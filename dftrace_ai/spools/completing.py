"""Completing what dead processes left at or below the paths that somebody names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dftrace_ai.spools.held import directories_at
from dftrace_ai.spools.recovery import Recovery, adopt_in
from dftrace_ai.trace_format.file_names import is_of_a_run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["RecoveryReport", "complete_directories", "report_of"]


@dataclass(frozen=True)
class RecoveryReport:
    """What `dftrace recover --json` prints.

    Attributes:
        finished: trace files that are complete now.
        alive: spools whose processes still run, here or on another host.
        failed: for each spool that could not be read its path, and why.
        damaged: what of the spools of finished traces could not be read.
        ended_in_order: those of `finished` that their own processes had completed.
        waiting: spools of the dead with events that could not be written, as on a full disk.
        format: version of this form; it grows when a member goes or means something else.
    """

    finished: list[str]
    alive: list[str]
    failed: list[str]
    damaged: list[str]
    ended_in_order: list[str]
    waiting: list[str]
    format: Literal[1] = 1


def report_of(found: Recovery) -> RecoveryReport:
    """Return what is printed of what became of spools."""
    return RecoveryReport(**found._asdict())


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
