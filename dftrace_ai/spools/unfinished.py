"""Clearing away the spools of processes that were killed before their header was whole."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING

import dftrace_ai._native as _native
from dftrace_ai.spools.held import HeldDirectory
from dftrace_ai.spools.search import spool_places
from dftrace_ai.trace_format.file_names import process_of_spool, spool_prefix
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["clear_unfinished"]

# What a header begins with once it is whole; nothing is recorded before.
MAGIC_BYTES = 8


def clear_unfinished(
    directory: str, run: str | None = None, *, spool_dir: str | os.PathLike[str] | None = None
) -> list[str]:
    """Remove spools of the caller that say nothing, since their processes were killed too early.

    A spool gets its name when its header is whole, where the file system has files without a
    name. Elsewhere one may be left that names no trace, so that it belongs to no directory:
    its own name tells which process made it.

    Args:
        directory: of traces, in which spools may lie as well as in the usual places.
        run: only the spools of this run (32 hexadecimal digits); None takes all.
        spool_dir: a directory to look for spools besides those.

    Returns:
        For each that cannot be removed: its path and why.

    Example::

        for line in clear_unfinished("out"):
            print(line)
    """
    prefix = spool_prefix(run)
    failed: list[str] = []
    for place in spool_places(directory, os.fspath(spool_dir or "")):
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
            if not name.startswith(prefix) or not _ended(name):
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
        # Looked at first: the lock of one that is whole is for those who complete its trace.
        if not _is_unfinished(descriptor):
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
