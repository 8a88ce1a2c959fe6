"""The end of a trace file: whether it is whole, and what its closing line says was lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from dftrace_ai.analysis.reading.files import GZIP_MAGIC, ZSTD_MAGIC
from dftrace_ai.analysis.reading.plain_stream import STEP_BYTES, BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.reader import LongLine, TraceReader, is_whole_line
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.analysis.reading.files import Codec, TraceFile

__all__ = ["TraceEnd", "read_end"]

# Blocks hold about a mebibyte of text; the first window nearly always suffices.
WINDOWS = (64 * 1024, 1024 * 1024, 16 * 1024 * 1024)

# The closing line is far shorter. Whether a longer last line is whole, only the reader can tell.
KEPT_BYTES = 1024 * 1024

# What looking for the last block may cost in a file that was made to cost much.
MOST_TRIES = 256
MOST_PLAIN_BYTES = 256 * 1024 * 1024

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
        with open_regular(file.path) as raw:
            size = raw.seek(0, 2)
            if size == 0:
                return TORN
            for window in WINDOWS:
                width = min(window, size)
                raw.seek(size - width)
                end = _end_in(file, raw.read(width), everything=width == size)
                if end is not None:
                    return end
                if width == size:
                    break
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror}") from error
    return _end_by_reading(file)


def _end_by_reading(file: TraceFile) -> TraceEnd:
    """Read the whole file for its end; where a block or a line is larger than any window."""
    reader = TraceReader(file)
    last = b""
    for _, line in reader.lines():
        last = line
    return TraceEnd(reader.tear is None, bracket=last.strip() == b"]", footer=_footer(last))


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
        text, whole_line = block.text, block.all_kept
    before, _, line = text.rstrip(b"\n").rpartition(b"\n")
    if not whole_line and not before:
        return None
    whole = text.endswith(b"\n") or is_whole_line(line)
    return TraceEnd(whole, bracket=line.strip() == b"]", footer=_footer(line))


@dataclass(frozen=True)
class _Block:
    """The end of a block: its last bytes, whether they are all it holds, what is behind it."""

    text: bytes
    all_kept: bool
    unused: bytes


def _last_block(codec: Codec, tail: bytes) -> _Block | None:
    """Return the last block of `tail` that is complete; None if there is none, or none is found."""
    start = len(tail)
    plain_bytes = 0
    for _ in range(MOST_TRIES):
        start = tail.rfind(BLOCK_MAGIC[codec], 0, start)
        if start < 0:
            return None
        decoder = block_decoder(codec)
        text = bytearray()
        before = plain_bytes
        try:
            for at in range(start, len(tail), STEP_BYTES):
                for piece in decoder.pieces(tail[at : at + STEP_BYTES]):
                    plain_bytes += len(piece)
                    text += piece
                    if len(text) > 2 * KEPT_BYTES:
                        del text[:-KEPT_BYTES]
                    if plain_bytes > MOST_PLAIN_BYTES:
                        return None
                if decoder.ended:
                    unused = decoder.unused + tail[at + STEP_BYTES :]
                    return _Block(bytes(text), plain_bytes - before == len(text), unused)
        except BrokenBlockError:
            # The magic stood there by chance, inside of compressed data.
            continue
    return None


def _footer(line: bytes) -> Mapping[str, Any] | None:
    if len(line) > KEPT_BYTES or isinstance(line, LongLine):
        return None
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(event, dict) or event.get("name") != "end" or event.get("cat") != "dftrace":
        return None
    args = event.get("args")
    return args if isinstance(args, dict) else None
