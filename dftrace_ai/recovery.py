"""Finishing the traces of processes that died, from the spools they left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai import _native

if TYPE_CHECKING:
    import os

__all__ = ["Recovery", "adopt_dead"]

MARKER_SUFFIX = ".spool-at"


class Recovery(NamedTuple):
    """What became of the spools of a directory."""

    finished: list[str]
    """Trace files that are complete now."""
    alive: list[str]
    """Spools whose processes still run, here or on another host."""
    failed: list[str]
    """For each spool that could not be read: its path and why."""


def adopt_dead(directory: str | os.PathLike[str], run: str | None = None) -> Recovery:
    """Finish the traces in `directory` whose processes have died.

    Safe to call at any time and any number of times: processes that run are left
    alone, and a trace is finished exactly once.

    Args:
        directory: where the trace files are.
        run: only the spools of this run (32 hexadecimal digits); None takes all.

    Returns:
        What was finished, what still runs, what could not be read.

    Example::

        for path in dftrace_ai.recovery.adopt_dead("out").finished:
            print("finished", path)
    """
    result = Recovery([], [], [])
    for marker in sorted(Path(directory).glob(f"*{MARKER_SUFFIX}")):
        try:
            with marker.open(encoding="utf-8", errors="surrogateescape") as file:
                spool = file.read(8192).strip()
        except FileNotFoundError:
            continue  # its process finished just now
        except OSError as error:
            result.failed.append(f"{marker}: {error.strerror}")
            continue
        name = Path(spool).name
        if not name.startswith("dftrace-") or not name.endswith(".spool"):
            result.failed.append(f"{marker}: names no spool")
            continue
        if run is not None and not name.startswith(f"dftrace-{run[:16]}-"):
            continue
        if not Path(spool).exists():
            # Its process takes the marker away before the spool: this one was lost (a reboot
            # empties /dev/shm), unless it lies on another host.
            if f"-{_native.host_name()}-" in marker.name:
                marker.unlink(missing_ok=True)
                result.failed.append(f"{spool}: is gone; what was not yet in the trace is lost")
            else:
                result.alive.append(spool)
            continue
        outcome = _native.adopt(spool)
        if outcome["state"] == "finished":
            marker.unlink(missing_ok=True)
            result.finished.append(outcome["trace_path"])
        elif outcome["state"] == "alive":
            result.alive.append(spool)
        else:
            result.failed.append(f"{spool}: {outcome['error']}")
    return result
