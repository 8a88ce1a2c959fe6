"""What processes that run have recorded and not yet written to their traces."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

import dftrace_ai._native as _native
from dftrace_ai.trace_format.header_and_footer import HeaderFacts
from dftrace_ai.trace_format.running import RunningProcess

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["processes_that_run", "waiting_events"]


def processes_that_run(spools: Iterable[str], paths: Iterable[Path]) -> list[RunningProcess]:
    """Look into spools of processes that run, without their noticing.

    Args:
        spools: paths, as `Recovery.alive` has them; what cannot be looked into from here, such as
            that of another host, is left out.
        paths: directories and trace files: only processes whose trace is one of them, or below.

    Returns:
        The processes that have something that is not in their traces, by rank.

    Example::

        found = complete_directories([Path("out")])
        for process in processes_that_run(found.alive, [Path("out")]):
            print(process.text)
    """
    given = {os.path.realpath(path) for path in paths}
    found = []
    for spool in spools:
        try:
            look = _native.look_into(spool, 0.0)
            unwritten = _native.unwritten_events(spool)
        except (OSError, ValueError):
            continue  # it has ended meanwhile, or has not yet begun
        ours = _is_below(look["trace_path"] or look["prefix"], given)
        if look["state"] != "alive" or look["finished"] or not unwritten or not ours:
            continue
        rank = _rank(look["header"])
        found.append(RunningProcess(rank, _plain(look["host"]), look["pid"], unwritten))
    return sorted(found, key=lambda one: (one.rank is None, one.rank or 0, one.host, one.pid))


def waiting_events(spools: Iterable[str]) -> int:
    """Return how many events are in spools of the dead and in no trace; open spans do not count.

    Args:
        spools: paths, as `Recovery.waiting` has them; what cannot be read counts as none.
    """
    count = 0
    for spool in spools:
        with contextlib.suppress(OSError, ValueError):
            count += _native.unwritten_events(spool)
    return count


def _is_below(trace: str, given: set[str]) -> bool:
    place = os.path.realpath(trace)
    while place not in given:
        above = os.path.dirname(place)
        if above == place:
            return False
        place = above
    return True


def _rank(members: str) -> int | None:
    """Return the rank of members of a header, each with a comma in front."""
    try:
        found = json.loads(f"{{{members[1:]}}}")
    except (ValueError, RecursionError):
        return None
    return HeaderFacts.of(found).rank


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode()
