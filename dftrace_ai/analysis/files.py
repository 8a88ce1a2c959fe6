"""Finding the trace files that a user means, and telling how each is compressed."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SUFFIXES", "Codec", "TraceFile", "find_traces", "open_trace_file"]

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
    """

    path: Path
    codec: Codec
    framed: bool
    named: bool

    def __str__(self) -> str:
        return str(self.path)


def find_traces(paths: Iterable[str | os.PathLike[str]]) -> list[TraceFile]:
    """Find the traces that files and directories hold.

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
    found: dict[str, Path] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = _traces_under(path)
            if not inside:
                raise TraceError(
                    f"{path}: no trace files ({', '.join(SUFFIXES)}) in this directory"
                )
        elif path.exists():
            inside = [path]
        else:
            raise TraceError(f"{path}: no such file or directory")
        for file in inside:
            found.setdefault(os.path.realpath(file), file)
    return [open_trace_file(path) for path in sorted(found.values())]


def _traces_under(directory: Path) -> list[Path]:
    problems: list[OSError] = []
    found = [
        Path(folder, name)
        for folder, _, names in os.walk(directory, onerror=problems.append)
        for name in names
        if name.endswith(SUFFIXES)
    ]
    if problems:
        raise TraceError(f"{problems[0].filename}: cannot be listed: {problems[0].strerror}")
    return found


def open_trace_file(path: str | os.PathLike[str]) -> TraceFile:
    """Look at the head of a file.

    An empty file and one that is cut before its first line count as traces without
    events: that is what a process leaves that was killed in its first write.

    Raises:
        TraceError: the file cannot be read or does not begin as a trace does.
    """
    path = Path(path)
    if not path.is_file():
        raise TraceError(f"{path}: not a regular file")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    codec: Codec = "plain"
    plain = head
    if head.startswith(GZIP_MAGIC):
        codec, plain = "gzip", _gzip_head(path, head)
    elif head.startswith(ZSTD_MAGIC):
        codec, plain = "zstd", _zstd_head(path, head)
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
    return TraceFile(path, codec, framed=first.strip() == b"[", named=named)


def _gzip_head(path: Path, head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error as error:
        raise TraceError(f"{path}: not a trace file: broken gzip data ({error})") from error


def _zstd_head(path: Path, head: bytes) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(head)
    except zstandard.ZstdError as error:
        raise TraceError(f"{path}: not a trace file: broken zstd data ({error})") from error
