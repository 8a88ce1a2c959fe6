"""Looking at the head of a file: whether it is a trace, and how it is compressed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.analysis.reading.decompression import BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.analysis.reading.trace_file import Codec, TraceFile, codec_of
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    import os

    from dftrace_ai.analysis.reading.trace_file import Copy

__all__ = ["Head", "open_trace_file", "read_head", "trace_file_of"]

HEAD_BYTES = 64 * 1024


class Head(NamedTuple):
    """The beginning of a file.

    Attributes:
        codec: how it is compressed.
        plain: its first bytes, unpacked.
    """

    codec: Codec
    plain: bytes


def open_trace_file(path: str | os.PathLike[str], *, asked_for: bool = False) -> TraceFile:
    """Look at the head of a file.

    An empty file and one that is cut before its first line count as traces without
    events: that is what a process leaves that was killed in its first write. A file of
    torch.profiler is read whole, since it is copied as lines.

    Args:
        path: the file.
        asked_for: see `TraceFile`.

    Raises:
        TraceError: the file cannot be read or does not begin as a trace does.
        DftraceError: there is no room for a copy.
    """
    path = Path(path)
    return trace_file_of(path, read_head(path), asked_for=asked_for)


def read_head(path: Path, content: Path | None = None) -> Head:
    """Read the beginning of a file.

    Args:
        path: what the file is called in messages.
        content: where it is; None for `path`.

    Raises:
        TraceError: it cannot be read, or is compressed and broken from the start.
    """
    try:
        with open_regular(content or path) as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    codec = codec_of(head)
    return Head(codec, head if codec == "plain" else _plain_head(path, codec, head))


def trace_file_of(
    path: Path, head: Head, *, asked_for: bool = False, copy: Copy | None = None
) -> TraceFile:
    """Return the trace that begins with a head.

    Args:
        path: what it is called.
        head: its beginning.
        asked_for: see `TraceFile`.
        copy: where it is, if not at `path`.

    Raises:
        TraceError: a trace does not begin so.
        DftraceError: there is no room for a copy.
    """
    start = head.plain.lstrip()
    if start and not start.startswith((b"[", b"{")):
        raise TraceError(
            f"{path}: not a trace file: its text begins neither with '[' nor with '{{'"
        )
    first, _, others = head.plain.partition(b"\n")
    named = others.startswith(b'{"name":"process_name"')
    framed = first.strip() == b"["
    file = TraceFile(path, head.codec, framed, named, asked_for, copy)
    if not start.startswith(b"{"):
        return file
    from dftrace_ai.analysis.reading.gathering.profile_text import begins_profile
    from dftrace_ai.analysis.reading.gathering.profiles import opened_profile

    return opened_profile(file) if begins_profile(start) else file


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
