"""The end of a trace file: whether it is whole, and what its closing line says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.analysis.reading.decompression import STEP_BYTES, BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.reader import TraceReader, event_of, is_whole_line
from dftrace_ai.analysis.reading.trace_file import GZIP_MAGIC, TORN, ZSTD_MAGIC
from dftrace_ai.errors import readable
from dftrace_ai.trace_format.header_and_footer import footer_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.trace_file import Codec, TraceFile
    from dftrace_ai.trace_format.header_and_footer import FooterFacts

EndState = Literal["complete", "cut off", "damaged"]
"""How a file ends: with its closing line, too early, or in bytes that are no part of a trace."""

NOT_CLOSED: Final = "no closing line: the process still runs, or died and its spool was not adopted"
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
        footer: what the closing line says; None when there is none, because the process
            still runs or died before its spool was adopted.
        damaged: what stands at the end is broken, and not only too short.
    """

    whole: bool
    bracket: bool
    footer: FooterFacts | None
    damaged: bool = False

    @property
    def closed(self) -> bool:
        """The file has a line that ends it."""
        return self.footer is not None or self.bracket

    @property
    def told(self) -> str:
        """What is to be said of it where nobody has read it all; empty of a whole file."""
        if self.damaged:
            return "damaged at its end; what comes before it can be read"
        if not self.whole:
            return "torn: its last block or line is cut; what comes before it can be read"
        return "" if self.closed else NOT_CLOSED

    @property
    def state(self) -> EndState:
        """In a word: ``complete``, ``cut off`` or ``damaged``.

        A file is cut off when its process still runs, or died and nobody has completed the
        trace, or when its last bytes are missing. Damage further ahead is found by who
        reads it all.
        """
        if self.damaged:
            return "damaged"
        return "complete" if self.whole and self.closed else "cut off"


CUT_OFF = TraceEnd(whole=False, bracket=False, footer=None)


def are_whole(notes: Iterable[str]) -> bool:
    """Return whether no note tells of a file without an end: else what is not found may be lost."""
    return not any(said in note for note in notes for said in (TORN, NOT_CLOSED))


def read_end(file: TraceFile) -> TraceEnd:
    """Read how a trace ends, and its footer, and nothing before; a TraceError where that fails."""
    torn = file.copy and file.copy.tear
    if torn:
        return replace(CUT_OFF, damaged=torn.damaged)
    with readable(file), file.opened() as raw:
        size = raw.seek(0, 2)
        if size == 0:
            return CUT_OFF
        for window in WINDOWS:
            width = min(window, size)
            raw.seek(size - width)
            end = _end_in(file, raw.read(width), everything=width == size)
            if end is not None:
                return end
            if width == size:
                break
    return _end_by_reading(file)


def _end_by_reading(file: TraceFile) -> TraceEnd:
    """Read the whole file for its end; where a block or a line is larger than any window."""
    reader = TraceReader(file)
    last = b""
    for _, line in reader.lines():
        last = line
    return TraceEnd(
        whole=reader.tear is None,
        bracket=last.strip() == b"]",
        footer=_footer(last),
        damaged=reader.tear is not None and reader.tear.damaged,
    )


def _end_in(file: TraceFile, tail: bytes, *, everything: bool) -> TraceEnd | None:
    """Judge the last bytes of a file; None when they are too few to tell."""
    if file.codec == "plain":
        text, whole_line = tail, everything
    else:
        block = _last_block(file.codec, tail)
        if block is None:
            return None
        if block.unused.strip(b"\0"):
            broken = _is_broken(file.codec, block.unused.lstrip(b"\0"))
            return replace(CUT_OFF, damaged=broken)
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


def _is_broken(codec: Codec, rest: bytes) -> bool:
    """Return whether what follows the last block is no beginning of another."""
    decoder = block_decoder(codec)
    plain_bytes = 0
    try:
        for at in range(0, len(rest), STEP_BYTES):
            for piece in decoder.pieces(rest[at : at + STEP_BYTES]):
                plain_bytes += len(piece)
            if decoder.ended or plain_bytes > MOST_PLAIN_BYTES:
                break
    except BrokenBlockError:
        return True
    return False


def _footer(line: bytes) -> FooterFacts | None:
    event = None if len(line) > KEPT_BYTES else event_of(line)
    return footer_of(event) if event else None
