"""Finishing the traces of processes that died, from the spools they left."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai import _native
from dftrace_ai.errors import quoted
from dftrace_ai.spool_search import MARKER_SUFFIX, FoundSpool, find_orphans, find_spools

if TYPE_CHECKING:
    from pathlib import Path

# Number and start of the process in the name of its spool.
PROCESS_IN_NAME = re.compile(r"-(\d{1,9})-(\d{1,19})-\d+\.spool$", re.ASCII)

__all__ = ["FoundSpool", "Recovery", "adopt_dead", "adopt_orphans", "find_spools"]


class Recovery(NamedTuple):
    """What became of the spools of a directory."""

    finished: list[str]
    """Trace files that are complete now."""
    alive: list[str]
    """Spools whose processes still run, here or on another host."""
    failed: list[str]
    """For each spool that could not be read: its path and why."""
    damaged: list[str]
    """What of the spools of finished traces could not be read: the path, and how much of what."""


def adopt_dead(
    directory: str | os.PathLike[str],
    run: str | None = None,
    *,
    spool_dir: str | os.PathLike[str] | None = None,
) -> Recovery:
    """Finish the traces in `directory` whose processes have died.

    Safe to call at any time and any number of times: processes that run are left
    alone, and a trace is finished exactly once.

    Args:
        directory: where the trace files are.
        run: only the spools of this run (32 hexadecimal digits); None takes all.
        spool_dir: a directory to look for spools besides the usual ones, as the
            setting of that name.

    Returns:
        What was finished, what still runs, what could not be read.

    Raises:
        OSError: never for a spool; those are told of in `Recovery.failed`.

    Example::

        for path in dftrace_ai.recovery.adopt_dead("out").finished:
            print("finished", path)
    """
    result = Recovery([], [], [], [])
    for spool in find_spools(directory, run, spool_dir=spool_dir):
        if spool.fault:
            result.failed.append(f"{quoted(str(spool.marker))}: {spool.fault}")
        elif not os.path.lexists(spool.path):
            _tell_of_missing(spool, result)
        else:
            _adopt(spool, os.fspath(directory), result)
    return result


def adopt_orphans(directory: str | os.PathLike[str]) -> Recovery:
    """Finish, in `directory`, the traces whose own directory is gone and whose processes have died.

    Their spools are looked for in ``/dev/shm``, in ``/tmp`` and in ``DFTRACE_SPOOL_DIR``.
    What had been written before is gone with its directory; the rest is written.

    Args:
        directory: where the trace files are to be made.

    Returns:
        What became of the spools that were found.

    Example::

        dftrace_ai.recovery.adopt_orphans("found")
    """
    result = Recovery([], [], [], [])
    for spool in find_orphans():
        _adopt(spool, os.fspath(directory), result, anew=True)
    return result


def _is_of_this_host(marker: Path) -> bool:
    # The stem in front may hold any text, even another host's name.
    host = re.escape(_native.host_name())
    return re.search(rf"-{host}-\d+(-\d+)?{re.escape(MARKER_SUFFIX)}$", marker.name) is not None


def _tell_of_missing(spool: FoundSpool, result: Recovery) -> None:
    # Its process, or who finished the trace, took the marker away before the spool. So one that has
    # only its marker was lost (a reboot empties /dev/shm), unless it lies on another host or in
    # another container, or its process lives: that has it in memory, and completes its trace.
    if not spool.marker or not os.path.lexists(spool.marker):
        return
    if _is_of_this_host(spool.marker) and not spool.elsewhere and not _lives(spool):
        shown = quoted(spool.path)
        result.failed.append(f"{shown}: is gone; what was not yet in the trace is lost")
        _remove(spool.marker, result)
    else:
        result.alive.append(spool.path)


def _lives(spool: FoundSpool) -> bool:
    process = PROCESS_IN_NAME.search(spool.path)
    if not process or spool.place != _native.marker_place():
        return False
    pid, start = process.groups()
    return not _native.process_gone(int(pid), int(start))


def _adopt(spool: FoundSpool, directory: str, result: Recovery, *, anew: bool = False) -> None:
    outcome = _native.adopt(spool.path, directory, anew, spool.marker or "")
    if outcome["state"] == "finished":
        if outcome["trace_path"]:
            result.finished.append(outcome["trace_path"])
        result.damaged.extend(f"{quoted(spool.path)}: {what}" for what in outcome["damage"])
        if spool.marker:
            _remove(spool.marker, result)
    elif outcome["state"] == "alive":
        result.alive.append(spool.path)
    elif outcome["state"] == "gone":
        _tell_of_missing(spool, result)
    else:
        result.failed.append(f"{quoted(spool.path)}: {outcome['error']}")


def _remove(marker: Path, result: Recovery) -> None:
    try:
        marker.unlink(missing_ok=True)
    except OSError as error:
        result.failed.append(f"{quoted(str(marker))}: cannot be removed: {error.strerror}")
