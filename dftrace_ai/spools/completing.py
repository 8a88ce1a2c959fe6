"""What commands ask of spools: to complete what the dead left, and what is not written yet."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import dftrace_ai._native as _native
from dftrace_ai.spools.held import directories_at
from dftrace_ai.spools.recovery import Recovery, adopt_in, clear_unfinished
from dftrace_ai.spools.search import FoundSpool, OwnSpools, find_spools, spools_of
from dftrace_ai.trace_format.file_names import (
    is_of_a_run,
    marker_base,
    run_of_spool,
    trace_name,
)
from dftrace_ai.trace_format.header_and_footer import HeaderFacts
from dftrace_ai.trace_format.running import RunningProcess

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dftrace_ai.spools.held import HeldDirectory
    from dftrace_ai.spools.outcome_types import SpoolLook


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


class LeftSpool(NamedTuple):
    """A spool beside what is read: of which run (the beginning of its name), and since when."""

    run: str
    # That of its trace.
    folder: str
    # When its process began, or its marker was written.
    began_ns: int
    state: Literal["alive", "dead", "other host", "unknown"]


class Leavings:
    """What processes left at directories, below them where `deep`, and for trace files: spools."""

    # `spool_dir`: one more place to look for spools.
    def __init__(
        self, paths: Iterable[Path], spool_dir: Path | None = None, *, deep: bool = True
    ) -> None:
        self._own = OwnSpools(spool_dir=spool_dir)
        self._deep = deep
        # os.path, since a name may be too long, and pathlib raises where this says no.
        given = sorted((not os.path.isdir(path), path) for path in set(paths))  # noqa: PTH112
        self._bases: dict[Path, set[str] | None] = {}
        for is_file, path in given:
            if not is_file:
                self._bases[path] = None
            elif (bases := self._bases.setdefault(path.parent, set())) is not None:
                bases.add(_base_of(path.name))

    def all(self) -> list[LeftSpool]:
        """Return the spools that are there, of processes that run as well."""
        found = []
        for directory, bases in self._directories():
            with contextlib.suppress(OSError):  # which is told where it is to be completed
                found += [
                    _left(one, directory.path)
                    for one in spools_of(directory, self._own)
                    if _is_for(one, bases)
                ]
        return found

    def complete(self, runs: Collection[str] | None = None, *, anew: bool = False) -> Recovery:
        """Complete the traces of those that died; `runs`: only of these, by `LeftSpool`."""
        # `anew`: where a trace is gone, or was cut, another file gets what its spool holds.
        found = Recovery.nothing()
        for directory, bases in self._directories():
            only = partial(_is_for, bases=bases, runs=runs)
            found.add(adopt_in(directory, self._own, anew=anew, only=only))
        return found

    def clear(self) -> Recovery:
        """Remove the spools that say nothing, in the usual places."""
        found = Recovery.nothing()
        found.failed.extend(clear_unfinished(self._own.places, self._own.prefix))
        return found

    def _directories(self) -> Iterator[tuple[HeldDirectory, set[str] | None]]:
        """Yield the directories with what a run leaves, and of which traces; None for all."""
        seen: set[tuple[int, int]] = set()
        for top, bases in self._bases.items():
            # Of no directory who reads the traces complains.
            with contextlib.suppress(OSError):
                for directory, names in directories_at(top):
                    info = os.fstat(directory.descriptor)
                    identity = (info.st_dev, info.st_ino)
                    given = directory.path == os.fspath(top)
                    if identity not in seen and (given or any(map(is_of_a_run, names))):
                        yield directory, bases
                        seen.add(identity)
                    if bases is not None or not self._deep:
                        break


def complete_directories(
    paths: Iterable[Path],
    spool_dir: Path | None = None,
    *,
    anew: bool = False,
    deep: bool = True,
) -> Recovery:
    """Complete what dead processes left, see `Leavings`; what is there of all runs."""
    leavings = Leavings(paths, spool_dir, deep=deep)
    found = leavings.complete(anew=anew)
    found.add(leavings.clear())
    return found


def _base_of(name: str) -> str:
    named = trace_name(name)
    return named.base if named else marker_base(name)


def _is_for(
    spool: FoundSpool, bases: Collection[str] | None, runs: Collection[str] | None = None
) -> bool:
    """Return whether a spool is of one of these traces, and of one of these runs."""
    if runs is not None and spool.path and run_of_spool(Path(spool.path).name) not in runs:
        return False
    return bases is None or spool.marker is None or marker_base(spool.marker.name) in bases


def _left(spool: FoundSpool, folder: str) -> LeftSpool:
    # Of a marker that names none it is empty.
    run = run_of_spool(Path(spool.path).name)
    with contextlib.suppress(OSError, ValueError):  # it is gone, or of another host
        # What must be left alone may be a pipe.
        if not spool.fault and spool.path:
            look = _native.look_into(spool.path, 0.0)
            return LeftSpool(run, folder, look["started_ns"], look["state"])
    try:
        made_ns = spool.marker.stat(follow_symlinks=False).st_mtime_ns if spool.marker else 0
    except OSError:
        made_ns = 0  # its process has completed its trace
    return LeftSpool(run, folder, made_ns, "unknown")


def spools_of_launch(directory: Path, launch: str) -> Iterator[tuple[str, SpoolLook]]:
    """Yield the spools of a launch of `dftrace run`, with what can be seen in each."""
    for spool in find_spools(directory):
        with contextlib.suppress(OSError, ValueError):
            look = None if spool.fault else _native.look_into(spool.path, 0.0)
            if look is not None and _facts(look["header"]).launch == launch:
                yield spool.path, look


def left_by_launch(directory: Path, launch: str, program: int) -> list[tuple[str, int, int]]:
    """Return what the dead of a launch, and its program, which ends, could not write."""
    # The run by its first 16 digits, events that were dropped, and those that wait.
    found = []
    for path, look in spools_of_launch(directory, launch):
        if look["state"] != "alive" or look["pid"] == program:
            waiting = waiting_events([path])
            found.append((run_of_spool(Path(path).name), look["dropped"], waiting))
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
        rank = _facts(look["header"]).rank
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


def _facts(members: str) -> HeaderFacts:
    """Return what members of a header say, each with a comma in front."""
    try:
        return HeaderFacts.of(json.loads(f"{{{members[1:]}}}"))
    except (ValueError, RecursionError):
        return HeaderFacts()


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode()
