"""The end of a trace file: whether it is whole, and what its closing line says was lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from dftrace_ai.analysis.files import GZIP_MAGIC, ZSTD_MAGIC
from dftrace_ai.analysis.plain_stream import block_decoder, decoding_errors
from dftrace_ai.analysis.reader import is_whole_line
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.analysis.files import Codec, TraceFile

__all__ = ["TraceEnd", "read_end"]

# Blocks hold about a mebibyte of text; the first window nearly always suffices.
WINDOWS = (64 * 1024, 1024 * 1024, 16 * 1024 * 1024)

BLOCK_MAGIC = {"gzip": GZIP_MAGIC + b"\x08", "zstd": ZSTD_MAGIC}


@dataclass(frozen=True)
class TraceEnd:
    """How a file ends.

    Attributes:
        whole: the last block and the last line are complete.
        bracket: the last line is ``]``, as other writers end a trace.
        footer: the members of the closing line's args; None when there is no closing
            line, because the process still runs or died before its spool was adopted.
    """

    whole: bool
    bracket: bool
    footer: Mapping[str, Any] | None


TORN = TraceEnd(whole=False, bracket=False, footer=None)


def read_end(file: TraceFile) -> TraceEnd:
    """Read how a trace ends without reading what comes before.

    Args:
        file: the trace.

    Returns:
        Whether it is whole, and its footer.

    Raises:
        TraceError: the operating system refuses to read the file.
    """
    try:
        with file.path.open("rb") as raw:
            size = raw.seek(0, 2)
            if size == 0:
                return TORN
            for window in (*(width for width in WINDOWS if width < size), size):
                raw.seek(size - window)
                end = _end_in(file, raw.read(window), everything=window == size)
                if end is not None:
                    return end
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror}") from error
    return TORN


def _end_in(file: TraceFile, tail: bytes, *, everything: bool) -> TraceEnd | None:
    """Judge the last bytes of a file; None when they are too few to tell."""
    if file.codec == "plain":
        text, whole_line = tail, everything
    else:
        block = _last_block(file.codec, tail)
        if block is None:
            return None
        if block.unused.strip(b"\0"):
            return TORN
        text, whole_line = block.text, True
    before, _, line = text.rstrip(b"\n").rpartition(b"\n")
    if not whole_line and not before:
        return None
    whole = text.endswith(b"\n") or is_whole_line(line)
    return TraceEnd(whole, bracket=line.strip() == b"]", footer=_footer(line))


@dataclass(frozen=True)
class _Block:
    text: bytes
    unused: bytes


def _last_block(codec: Codec, tail: bytes) -> _Block | None:
    """Return the last block of `tail` that is complete, with the bytes behind it."""
    start = len(tail)
    while (start := tail.rfind(BLOCK_MAGIC[codec], 0, start)) >= 0:
        decoder = block_decoder(codec)
        try:
            text = decoder.decompress(tail[start:])
        except decoding_errors(codec):
            # The magic stood there by chance, inside of compressed data.
            continue
        if decoder.eof:
            return _Block(text, decoder.unused_data)
    return None


def _footer(line: bytes) -> Mapping[str, Any] | None:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(event, dict) or event.get("name") != "end" or event.get("cat") != "dftrace":
        return None
    args = event.get("args")
    return args if isinstance(args, dict) else None
