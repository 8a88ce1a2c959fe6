"""Looking at the head of a file: whether it is a trace, and how it is compressed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.analysis.reading.decompression import BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.analysis.reading.trace_file import GZIP_MAGIC, ZSTD_MAGIC, Codec, TraceFile
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    import os

__all__ = ["open_trace_file"]

HEAD_BYTES = 64 * 1024


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
