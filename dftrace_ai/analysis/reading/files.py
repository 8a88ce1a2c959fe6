"""Finding the trace files that a user means, and telling how each is compressed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dftrace_ai.analysis.reading.plain_stream import BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "SUFFIXES",
    "Codec",
    "SkippedFile",
    "TraceFile",
    "TraceSearch",
    "find_traces",
    "open_trace_file",
    "search_traces",
]

Codec = Literal["gzip", "zstd", "plain"]

SUFFIXES = (".pfw", ".pfw.gz", ".pfw.zst")

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class TraceFile:
    """A file on disk that holds a trace, or the beginning of one.

    Attributes:
        path: where it lies.
        codec: how it is compressed, told from its first bytes and not its name.
        framed: its first line is ``[``.
        named: its first event is ``process_name``, as the recorder of this package has it.
        asked_for: its path was given, and not that of a directory which holds it.
    """

    path: Path
    codec: Codec
    framed: bool
    named: bool
    asked_for: bool = False

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class SkippedFile:
    """A file of a directory that has the name of a trace and cannot be read as one."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @classmethod
    def because_of(cls, error: TraceError, path: str | os.PathLike[str]) -> SkippedFile:
        """Return the file at `path`, of which `error` tells."""
        name = os.fspath(path)
        return cls(name, str(error).removeprefix(f"{name}: "))


@dataclass(frozen=True)
class TraceSearch:
    """What files and directories hold.

    Attributes:
        files: the traces, each once, sorted by path; at least one.
        skipped: files of directories that cannot be read as traces, sorted by path.
    """

    files: tuple[TraceFile, ...]
    skipped: tuple[SkippedFile, ...]


def find_traces(paths: Iterable[str | os.PathLike[str]]) -> list[TraceFile]:
    """Find the traces that files and directories hold; every one has to be readable.

    Args:
        paths: files of any name, and directories, which are searched to any depth
            for names that end in ``.pfw``, ``.pfw.gz`` or ``.pfw.zst``.

    Returns:
        Each file once, sorted by path.

    Raises:
        TraceError: a path does not exist, cannot be read, is not a trace, or is a
            directory without traces.

    Example::

        for file in find_traces(["out/"]):
            print(file.path, file.codec)
    """
    found = search_traces(paths)
    for skipped in found.skipped:
        raise TraceError(str(skipped))
    return list(found.files)


def search_traces(paths: Iterable[str | os.PathLike[str]]) -> TraceSearch:
    """Find the traces that files and directories hold, past those that cannot be read.

    Links in a directory are followed to files of the same directory only.

    Args:
        paths: as for `find_traces`.

    Returns:
        The traces, and what was skipped.

    Raises:
        TraceError: a path that was given does not exist or is no trace, a directory
            holds no traces, or nothing that was found can be read.

    Example::

        found = search_traces(["out/"])
        for skipped in found.skipped:
            print("skipped", skipped)
    """
    asked: dict[str, Path] = {}
    inside: dict[str, Path] = {}
    skipped: list[SkippedFile] = []
    for given in paths:
        path = Path(given)
        if not _is_directory(path):
            asked.setdefault(os.path.realpath(path), path)
            continue
        names = 0
        for file, reason in _traces_under(path):
            names += 1
            if reason:
                skipped.append(SkippedFile(str(file), reason))
            else:
                inside.setdefault(os.path.realpath(file), file)
        if not names:
            raise TraceError(f"{path}: no trace files ({', '.join(SUFFIXES)}) in this directory")
    files = [open_trace_file(path, asked_for=True) for path in asked.values()]
    for real, path in inside.items():
        if real in asked:
            continue
        try:
            files.append(open_trace_file(path))
        except TraceError as error:
            skipped.append(SkippedFile.because_of(error, path))
    skipped.sort(key=lambda one: one.path)
    if skipped and not files:
        others = f"; {len(skipped) - 1} more cannot be read either" if len(skipped) > 1 else ""
        raise TraceError(f"{skipped[0]}{others}")
    return TraceSearch(tuple(sorted(files, key=lambda file: file.path)), tuple(skipped))


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file or directory") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{path}: not a path: {error}") from error


def _traces_under(directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield what a directory holds that is called a trace, and why it cannot be one, or ""."""
    problems: list[OSError] = []
    root = os.path.realpath(directory)
    for folder, _, names in os.walk(directory, onerror=problems.append):
        for name in names:
            if name.endswith(SUFFIXES):
                path = Path(folder, name)
                target = os.path.realpath(path)
                outside = path.is_symlink() and not Path(target).is_relative_to(root)
                yield path, "a link that leads out of the directory" if outside else ""
    for problem in problems:
        reason = f"cannot be listed: {problem.strerror}"
        if problem.filename == str(directory):
            raise TraceError(f"{directory}: {reason}")
        yield Path(problem.filename), reason


def open_trace_file(path: str | os.PathLike[str], *, asked_for: bool = False) -> TraceFile:
    """Look at the head of a file.

    An empty file and one that is cut before its first line count as traces without
    events: that is what a process leaves that was killed in its first write.

    Args:
        path: the file.
        asked_for: see `TraceFile`.

    Raises:
        TraceError: the file cannot be read or does not begin as a trace does.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    codec: Codec = "plain"
    if head.startswith(GZIP_MAGIC):
        codec = "gzip"
    elif head.startswith(ZSTD_MAGIC):
        codec = "zstd"
    plain = head if codec == "plain" else _plain_head(path, codec, head)
    start = plain.lstrip()
    if start.startswith(b'{"traceEvents"'):
        raise TraceError(
            f"{path}: a trace of the form {{'traceEvents': [...]}}; "
            "this tool reads one event a line"
        )
    if start and not start.startswith((b"[", b"{")):
        raise TraceError(
            f"{path}: not a trace file: its text begins neither with '[' nor with '{{'"
        )
    first, _, others = plain.partition(b"\n")
    named = others.startswith(b'{"name":"process_name"')
    return TraceFile(path, codec, framed=first.strip() == b"[", named=named, asked_for=asked_for)


def _plain_head(path: Path, codec: Codec, head: bytes) -> bytes:
    plain = b""
    try:
        for piece in block_decoder(codec).pieces(head):
            plain += piece[:HEAD_BYTES]
            if len(plain) >= HEAD_BYTES:
                break
    except BrokenBlockError as error:
        # What is readable before the damage is a trace; `PlainStream` tells where it ends.
        if not plain:
            raise TraceError(f"{path}: not a trace file: broken {codec} data ({error})") from error
    return plain
