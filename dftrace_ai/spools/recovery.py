"""Finishing the traces of processes that died, from the spools they left."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dftrace_ai._native as _native
from dftrace_ai.spools.held import HeldDirectory
from dftrace_ai.spools.search import (
    FoundSpool,
    OwnSpools,
    find_orphans,
    find_spools,
    lives_without,
    marker_in,
    spools_of,
)
from dftrace_ai.trace_format.file_names import MARKER_SUFFIX, process_of_spool
from dftrace_ai.wording import described, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

__all__ = [
    "FoundSpool",
    "Recovery",
    "adopt_dead",
    "adopt_in",
    "adopt_orphans",
    "complete_children",
    "find_spools",
]

# Linux gives no process a higher number.
MOST_PROCESSES = 2**22
# The times of files may be those of a file server's clock.
CLOCKS_APART_S = 60
# What a spool's header begins with once it is whole; nothing is recorded before.
MAGIC_BYTES = 8


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
    ended_in_order: list[str]
    """Those of `finished` that their own processes had completed: only their spools were left."""
    waiting: list[str]
    """Spools of the dead with events that could not be written, as where the disk is full."""

    @classmethod
    def nothing(cls) -> Recovery:
        """Return one of no spools."""
        return cls([], [], [], [], [], [])

    def add(self, other: Recovery) -> None:
        """Take in what became of other spools."""
        for all_of_them, some in zip(self, other, strict=True):
            all_of_them.extend(some)


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

        for path in dftrace_ai.spools.recovery.adopt_dead("out").finished:
            print("finished", path)
    """
    result = Recovery.nothing()
    try:
        held = HeldDirectory(directory)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return result
    except OSError as error:
        result.failed.append(f"{quoted(os.fspath(directory))}: {error.strerror}")
        return result
    own = OwnSpools(run, spool_dir)
    with held:
        result.add(adopt_in(held, own))
    result.failed.extend(clear_unfinished(own.places, own.prefix))
    return result


def adopt_in(
    directory: HeldDirectory,
    own: OwnSpools,
    *,
    anew: bool = False,
    only: Callable[[FoundSpool], bool] = lambda _: True,
) -> Recovery:
    """Finish traces as `adopt_dead` does, in a directory that is held open.

    `anew`: where a trace is gone, or was cut, another file gets what its spool holds. `only`: which
    spools; the others are left alone.
    """
    try:
        found = list(filter(only, spools_of(directory, own)))
    except OSError as error:
        result = Recovery.nothing()
        result.failed.append(f"{quoted(directory.path)}: {error.strerror}")
        return result
    result = _adopt_all(found, directory, anew=anew)
    result.failed.extend(clear_unfinished(own.besides(directory), own.prefix))
    return result


def complete_children(
    directory: str,
    run: str,
    spool_dir: str | None,
    own: str = "",
    by_loader: Collection[int] = (),
) -> list[str]:
    """Finish the traces of the run's dead children; return a line for each that is not complete.

    `own`: the spool of this process, where its trace could not be completed: it is told of
    otherwise, and left to the next reader. `by_loader`: the children that were told to end.
    """
    # Whoever may write to the directory can put markers and spools there that bear the run's name.
    # Only those of this user are looked at.
    try:
        places = OwnSpools(run, spool_dir)
        with HeldDirectory(directory) as held:
            # Others may name a path that makes whoever looks at it wait.
            found = spools_of(held, places, owner=os.geteuid())
            children = [spool for spool in found if not _is_at(spool.path, own)]
            ours = [one for one in children if one.owner == os.geteuid()]
            result = _adopt_all(ours, held, by_loader=by_loader)
            beside = places.besides(held)
            result.failed.extend(clear_unfinished([*beside, *places.places], places.prefix))
    except FileNotFoundError:
        return []  # the directory is gone, and so is every trace in it
    except Exception as error:  # noqa: BLE001 - what others leave there must not end a training
        why = _in_words(error)
        return [f"the traces of children are not completed: {quoted(directory)}: {why}"]
    damaged = [f"the trace of a child is not complete: {line}" for line in result.damaged]
    return damaged + [f"the trace of a child cannot be completed: {line}" for line in result.failed]


def _in_words(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return described(error)
    if error.errno == errno.EMFILE:
        return f"{error.strerror} in this process; raise the limit (RLIMIT_NOFILE, ulimit -n)"
    return error.strerror


def _is_at(path: str, own: str) -> bool:
    return bool(path and own) and os.path.realpath(path) == os.path.realpath(own)


def _adopt_all(
    found: Iterable[FoundSpool],
    directory: HeldDirectory,
    *,
    anew: bool = False,
    by_loader: Collection[int] = (),
) -> Recovery:
    result = Recovery.nothing()
    for spool in found:
        if spool.begun and spool.marker:
            _tell_of_begun(spool.marker, directory, result)
        elif spool.fault:
            result.failed.append(f"{quoted(str(spool.marker))}: {spool.fault}")
        elif not os.path.lexists(spool.path):
            _tell_of_missing(spool, directory, result)
        elif original := _original_of(spool, directory):
            _tell_of_copy(spool, original, result)
        else:
            process = process_of_spool(spool.path)
            told = process is not None and process.pid in by_loader
            _adopt(spool, directory, result, anew=anew, by_loader=told)
    return result


def adopt_orphans(directory: str | os.PathLike[str]) -> Recovery:
    """Finish, in `directory`, the traces whose own directory is gone and whose processes have died.

    Their spools are looked for in ``/dev/shm``, in ``/tmp`` and in ``DFTRACE_SPOOL_DIR``. What had
    been written before is gone with its directory; the rest is written.
    """
    result = Recovery.nothing()
    try:
        held = HeldDirectory(directory)
    except OSError as error:
        result.failed.append(f"{quoted(os.fspath(directory))}: {error.strerror}")
        return result
    with held:
        for spool in find_orphans():
            _adopt(spool, held, result, anew=True)
    return result


def _process_of(marker: Path) -> int | None:
    """Return the process of a marker by its name; None for one of another host."""
    # The stem in front may hold any text, even another host's name.
    host = re.escape(_native.host_name())
    found = re.search(rf"-{host}-(\d+)(-\d+)?{re.escape(MARKER_SUFFIX)}$", marker.name)
    return int(found[1]) if found else None


def _tell_of_begun(marker: Path, directory: HeldDirectory, result: Recovery) -> None:
    process = _process_of(marker)
    try:
        made_s = directory.look(marker.name).st_mtime
    except OSError:
        return  # its process has written it, or taken it away
    if process is None or _ran_at(process, made_s):
        result.alive.append(str(marker))
    else:
        # It says nothing: the spool, if there is one, is found where spools lie.
        _remove(marker, directory, result)


def _ran_at(process: int, time_s: float) -> bool:
    """Return whether a process runs that did so at a time of the past, as far as that is known."""
    if process > MOST_PROCESSES or _native.process_gone(process, 0):
        return False
    try:
        if str(Path("/proc/self").readlink()) != str(os.getpid()):
            return True  # /proc is another container's, where the number is another process
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        start_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return True  # /proc hides it
    boot_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot_s + start_s < time_s + CLOCKS_APART_S


def _tell_of_missing(spool: FoundSpool, directory: HeldDirectory, result: Recovery) -> None:
    # Its process, or who finished the trace, took the marker away before the spool. So one that has
    # only its marker was lost (a reboot empties /dev/shm), unless it lies on another host or in
    # another container, or its process lives: that has it in memory, and completes its trace.
    if not spool.marker:
        return
    # Read again: somebody else may be completing the trace, who says so in the marker and removes
    # the spool before it.
    now = marker_in(directory, spool.marker.name)
    if now is None:
        return
    if now.complete:
        # Nothing is missing: where it has to stay, there is nothing to tell.
        with contextlib.suppress(OSError):
            directory.remove(spool.marker.name)
    elif (
        _process_of(spool.marker) is not None
        and not spool.elsewhere
        and not lives_without(spool.path, spool.place)
    ):
        lost = (
            "this is a copy, and what was not yet in the trace is where it was copied from, or lost"
            if spool.copied
            else "what was not yet in the trace is lost"
        )
        result.failed.append(f"{quoted(spool.path)}: is gone; {lost}")
        _remove(spool.marker, directory, result)
    else:
        result.alive.append(spool.path)


def _original_of(spool: FoundSpool, directory: HeldDirectory) -> str | None:
    """Return which other directory a spool belongs to, where this one is a copy of it."""
    if not spool.copied or not spool.marker:
        return None
    try:
        own = _native.spool_trace_directory(spool.path)
        if directory.is_same(own):
            return None
        with HeldDirectory(own) as original:
            there = marker_in(original, spool.marker.name)
    except (OSError, ValueError):
        return None  # renamed, or moved to another file system, which is a copy as well
    return own if there is not None and there.path == spool.path else None


def _tell_of_copy(spool: FoundSpool, original: str, result: Recovery) -> None:
    if lives_without(spool.path, spool.place):
        result.alive.append(spool.path)
    else:
        result.failed.append(
            f"{quoted(str(spool.marker))}: is a copy; the rest of its trace goes to "
            f"{quoted(original)}: recover that, and copy it again"
        )


def _adopt(
    spool: FoundSpool,
    directory: HeldDirectory,
    result: Recovery,
    *,
    anew: bool = False,
    by_loader: bool = False,
) -> None:
    outcome = _native.adopt(
        spool.path,
        directory.path,
        descriptor=directory.descriptor,
        anew=anew,
        marker=spool.marker.name if spool.marker else "",
        owner=spool.owner,
        by_loader=by_loader,
    )
    if outcome["state"] == "finished":
        if outcome["trace_path"]:
            result.finished.append(outcome["trace_path"])
            if outcome["was_complete"]:
                result.ended_in_order.append(outcome["trace_path"])
        result.damaged.extend(f"{quoted(spool.path)}: {what}" for what in outcome["damage"])
        if outcome["spool_path"]:
            # Its marker says that it is complete, and leads whoever may to it.
            result.failed.append(
                f"{quoted(spool.path)}: is in its trace, and cannot be removed: {outcome['error']}"
            )
        elif spool.marker:
            _remove(spool.marker, directory, result, "its trace is complete, and it ")
    elif outcome["state"] == "alive":
        result.alive.append(spool.path)
    elif outcome["state"] == "gone":
        _tell_of_missing(spool, directory, result)
    else:
        result.failed.append(f"{quoted(spool.path)}: {quoted(outcome['error'])}")
        result.waiting.append(spool.path)


def _remove(marker: Path, directory: HeldDirectory, result: Recovery, also: str = "") -> None:
    try:
        directory.remove(marker.name)
    except OSError as error:
        why = f"{also}cannot be removed: {error.strerror}"
        result.failed.append(f"{quoted(str(marker))}: {why}")


def clear_unfinished(places: Iterable[str], prefix: str) -> list[str]:
    """Remove spools of the caller that say nothing; return for each that stays its path and why."""
    # A spool gets its name when its header is whole, where the file system has files without a
    # name. Elsewhere one may be left whose process was killed too early: it names no trace, and
    # belongs to no directory, but its own name tells which process made it.
    failed: list[str] = []
    for place in places:
        # Of a process on another host, which may be making its spool there, nothing is known.
        if not _native.on_network(place):
            failed.extend(_clear(place, prefix))
    return failed


def _clear(place: str, prefix: str) -> Iterator[str]:
    try:
        held = HeldDirectory(place)
    except OSError:
        return  # one of several places that are looked into in case there is something
    with held:
        try:
            names = list(held.entries())
        except OSError:
            return
        for name in names:
            if not name.startswith(prefix):
                continue
            try:
                _remove_if_unfinished(held, name)
            except (FileNotFoundError, BlockingIOError):
                continue  # somebody else takes care of it
            except OSError as error:
                yield f"{quoted(held.shown(name))}: cannot be cleared away: {error.strerror}"


def _ended(spool: str) -> bool:
    process = process_of_spool(spool)
    return process is not None and _native.process_gone(process.pid, process.start)


def _remove_if_unfinished(directory: HeldDirectory, name: str) -> None:
    if not _is_own_file(directory.look(name)):
        return
    descriptor = directory.open(name, os.O_RDONLY)
    try:
        # Looked at first: the lock of one that is whole is for those who complete its trace. Of
        # thousands none is asked about whose process does not matter.
        if not _is_unfinished(descriptor) or not _ended(name):
            return
        # Numbers of processes mean nothing in another container, where its process may live.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_unfinished(descriptor):
            directory.remove(name)
    finally:
        os.close(descriptor)


def _is_unfinished(descriptor: int) -> bool:
    return _is_own_file(os.fstat(descriptor)) and not any(os.pread(descriptor, MAGIC_BYTES, 0))


def _is_own_file(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
