"""Which runs a directory holds, and the whole lines of their logs, as far as there are any now."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.names import is_made_of, lie_in
from dftrace_ai.loggers.runs.lines import (
    EndLine,
    MediaLine,
    MetricsLine,
    RunLine,
    line_of,
    whole_text,
)
from dftrace_ai.loggers.runs.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

MOST_DEPTH = 32
"""Of directories below the one that is searched."""

LINE_BYTES = 16 << 20
"""A longer line is passed over, and counted."""
MOST_WITHOUT_END = 256 << 20
"""After so many bytes without the end of a line nothing more is read of a log."""
PIECE_BYTES = 1 << 20
END_BYTES = 1 << 20
"""So much of a log is looked at for the steps that it has reached."""

LOG = re.compile(r"rank(\d{1,9})-\d{1,9}-(\d{1,20})\.jsonl", re.ASCII)
"""The name of a log: its rank, its process, and when it was begun."""
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NoRunsError(DftraceError):
    """A directory is not there, cannot be read, or holds no runs."""


def head_of(path: Path) -> RunLine | None:
    """Return what the process that writes a log says of itself; None where that cannot be read."""
    try:
        with closing(LogLines(path)) as log:
            head = line_of(next(iter(log), b""))
    except OSError:
        return None
    return head if isinstance(head, RunLine) else None


class Reached(NamedTuple):
    """How far a run has come; -1 where nothing was logged."""

    iteration: int = -1
    epoch: int = -1


def reached(folder: Path, rank: int, names: tuple[str, str], before_ns: int) -> Reached:
    """Return the greatest steps in the ends of the logs that a rank of a run has ended.

    Logs that were begun after `before_ns`, since 1970, do not count.
    """
    found = {"iteration": -1, "epoch": -1}
    own = (whole_text(names[0]), whole_text(names[1]))
    for path in folder.glob(f"rank{rank}-*.jsonl"):
        name = LOG.fullmatch(path.name)
        if name is None or int(name[2]) >= before_ns:
            continue
        head = head_of(path)
        if head is not None and (head.project, head.name) != own:
            continue
        try:
            with closing(LogLines(path)) as log:
                lines = list(map(line_of, log.last_bytes(END_BYTES).splitlines()))
        except OSError:
            continue
        is_over = bool(lines) and isinstance(lines[-1], EndLine)
        if not is_over and head is not None and is_alive(head.process, log.written_s):
            continue  # it goes on beside, and with numbers of its own
        for line in lines:
            if isinstance(line, MetricsLine | MediaLine) and line.axis in found:
                found[line.axis] = max(found[line.axis], line.step)
    return Reached(**found)


class LogLines:
    """The whole lines of a log, up to where it ended when that was last asked."""

    # A line that has no end yet is no line: its writer is about to go on with it, or was killed.
    # `passed_over` lines were too long; `torn` says that there are bytes behind the last whole one.

    def __init__(self, path: Path) -> None:
        self.passed_over = 0
        self.torn = False
        self._file = os.open(path, FLAGS)
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            os.close(self._file)
            raise OSError(errno.EINVAL, "is no file")
        self._until = 0
        self.written_s = 0.0
        self.look()

    def look(self) -> None:
        """See how far the log reaches now; what comes later is left to the next reader."""
        info = os.fstat(self._file)
        self._until, self.written_s = info.st_size, info.st_mtime

    def last_bytes(self, most: int) -> bytes:
        """Return so many of the last bytes, at most."""
        return os.pread(self._file, most, max(0, self._until - most))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __iter__(self) -> Iterator[bytes]:
        at = without_end = 0
        begun: list[bytes] = []
        while at < self._until:
            piece = os.pread(self._file, min(PIECE_BYTES, self._until - at), at)
            if not piece:
                break
            at += len(piece)
            whole, end, rest = piece.rpartition(b"\n")
            if end:
                first, *others = whole.split(b"\n")
                begun.append(first)
                if without_end + len(first) <= LINE_BYTES:
                    yield b"".join(begun)
                else:
                    self.passed_over += 1
                yield from others
                begun, without_end = [], 0
            without_end += len(rest)
            begun = [*begun, rest] if without_end <= LINE_BYTES else []
            if without_end > MOST_WITHOUT_END:
                self.passed_over += 1
                break
        self.torn = without_end > 0


def kept_bytes(folder: Path, file: str, most: int) -> bytes | None:
    """Read a file that a line names; None for one that is long, elsewhere, or behind a link."""
    parts = file.split("/")
    if not all(parts) or any(part in (".", "..") or "\0" in part for part in parts):
        return None
    held: list[int] = []
    try:
        held.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for part in parts[:-1]:
            held.append(os.open(part, FLAGS | os.O_DIRECTORY, dir_fd=held[-1]))
        held.append(os.open(parts[-1], FLAGS, dir_fd=held[-1]))
        info = os.fstat(held[-1])
        if not stat.S_ISREG(info.st_mode) or info.st_size > most:
            return None
        with open(held.pop(), "rb") as opened:  # noqa: PTH123 - a number
            return opened.read(most)
    except (OSError, ValueError):
        return None
    finally:
        for number in held:
            os.close(number)


class RunFolder(NamedTuple):
    """The directory of a run."""

    # Project and name as they were given, as far as they lie below the directory that was searched;
    # its path there, where somebody has called it otherwise.
    key: str
    path: Path
    # Names, in the order in which they were begun by each rank.
    logs: tuple[str, ...]


def run_folders(root: Path) -> tuple[list[RunFolder], list[str]]:
    """Find the runs below a directory, or the one that it is, in the order of their keys.

    Also returns why some directories could not be searched. Links are not followed.
    """
    # Logs of one directory that were begun under different names are different runs.
    notes: list[str] = []
    found: dict[str, RunFolder] = {}
    waiting = [(root, "", 0)]
    while waiting:
        folder, key, depth = waiting.pop()
        logs: list[str] = []
        below: list[tuple[Path, str, int]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if LOG.fullmatch(entry.name):
                        logs.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False) and depth < MOST_DEPTH:
                        inner = f"{key}/{entry.name}" if key else entry.name
                        below.append((folder / entry.name, inner, depth + 1))
        except OSError as error:
            if not depth:
                raise NoRunsError(f"{folder}: cannot be read: {error.strerror}") from error
            # One that was removed meanwhile is no longer there to be told of.
            if not isinstance(error, FileNotFoundError):
                notes.append(f"{folder}: cannot be read: {error.strerror}")
            continue
        if logs:
            for run in _runs_of(folder, key, logs):
                found[_told_apart(run.key, key, found)] = run
        else:
            # The last is taken first: in the order of their names.
            waiting += sorted(below, reverse=True)
    if not found:
        raise NoRunsError(
            f"{root}: there are no runs; they are written there by the interface `local` with "
            "this directory as its log_dir"
        )
    return sorted(run._replace(key=key) for key, run in found.items()), notes


def _runs_of(folder: Path, key: str, logs: Iterable[str]) -> Iterable[RunFolder]:
    """Yield the runs of a directory: one, or as many as were begun there under names of their own.

    What was moved there, and a log that does not say whose it is, belongs to the only one.
    """
    ordered = sorted(logs, key=_by_rank_and_begin)
    by_names: dict[tuple[str, str] | None, list[str]] = {}
    for log in ordered:
        head = head_of(folder / log)
        names = None if head is None else (head.project, head.name)
        own = names if names is not None and lie_in(names, folder) else None
        by_names.setdefault(own, []).append(log)
    if len(by_names) == 2 and None in by_names:
        by_names = {next(filter(None, by_names)): ordered}
    for names, own_logs in by_names.items():
        yield RunFolder(whole_text(_shown(folder, key, names)), folder, tuple(own_logs))


def _shown(folder: Path, key: str, names: tuple[str, str] | None) -> str:
    """Return the path of a run below what was searched, with names as they were given."""
    parts = key.split("/") if key else [folder.absolute().name]
    for at, name in zip((-2, -1), names or (), strict=False):
        # What somebody has called otherwise since keeps that name.
        if len(parts) >= -at and is_made_of(parts[at], name):
            parts[at] = name
    return "/".join(parts)


def _told_apart(shown: str, key: str, taken: Container[str]) -> str:
    """Return a key that no other run has: there may be slashes in the name of another's project."""
    if shown not in taken:
        return shown
    other, number = whole_text(f"{shown} ({key})"), 1
    while other in taken:
        number += 1
        other = whole_text(f"{shown} ({key}, {number})")
    return other


def _by_rank_and_begin(name: str) -> tuple[int, int, str]:
    rank, begun_ns = LOG.fullmatch(name).groups()  # type: ignore[union-attr]
    return int(rank), int(begun_ns), name
