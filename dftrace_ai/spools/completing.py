"""What commands ask of spools: to complete what the dead left, and what is not written yet."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import dftrace_ai._native as _native
from dftrace_ai.spools.held import directories_at
from dftrace_ai.spools.recovery import Recovery, adopt_in
from dftrace_ai.trace_format.file_names import is_of_a_run
from dftrace_ai.trace_format.header_and_footer import HeaderFacts
from dftrace_ai.trace_format.running import RunningProcess

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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
        kind: ``dftrace recover``, by which its JSON is known.
    """

    finished: list[str]
    alive: list[str]
    failed: list[str]
    damaged: list[str]
    ended_in_order: list[str]
    waiting: list[str]
    format: Literal[1] = 1
    kind: Literal["dftrace recover"] = "dftrace recover"


def report_of(found: Recovery) -> RecoveryReport:
    """Return what is printed of what became of spools."""
    return RecoveryReport(**found._asdict())


def complete_directories(
    paths: Iterable[Path],
    spool_dir: Path | None = None,
    *,
    anew: bool = False,
    deep: bool = True,
) -> Recovery:
    """Complete what dead processes left at or below directories, and around trace files.

    `anew`: where a trace is gone, or was cut, another file gets what its spool holds. Not `deep`:
    nothing below directories.
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
                if not (is_directory and deep):
                    break
        except OSError:
            continue  # no directory: who reads the traces complains of it
    return found


def processes_that_run(spools: Iterable[str], paths: Iterable[Path]) -> list[RunningProcess]:
    """Return which processes that run have something that is not in their traces, by rank.

    `spools`: as `Recovery.alive` has them; what cannot be looked into from here is left out.
    `paths`: only processes whose trace is one of these, or below.
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
    """Return how many events are in spools of the dead and in no trace; open spans do not count."""
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
