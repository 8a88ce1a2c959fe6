"""The plain bytes of a trace file of any codec, read up to where the file is torn."""

from __future__ import annotations

import contextlib
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from dftrace_ai.analysis.reading.trace_file import MAGIC_BYTES, Tear, is_skippable
from dftrace_ai.errors import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.trace_file import Codec, TraceFile

# Compressed bytes per step.
STEP_BYTES = 64 * 1024
PLAIN_STEP_BYTES = 1024 * 1024

# Plain bytes that a gzip block gives at once; the rest stays in the decoder.
GZIP_PIECE_BYTES = 1024 * 1024

# The decoder of zstandard cannot be stopped half-way, so it is fed in crumbs: four bytes may stand
# for 128 KiB, and these for no more than 16 MiB.
ZSTD_CRUMB_BYTES = 512

# What a zstd frame may ask for; `zstd --ultra` stays within it.
ZSTD_WINDOW_BYTES = 128 * 1024 * 1024


class BrokenBlockError(Exception):
    """The bytes of a block are not what its codec writes."""


class BlockDecoder(Protocol):
    """A decoder of one block, in memory that its input cannot raise.

    A block is a gzip member, or a zstd frame with the frames to be skipped in front of it. `ended`
    tells that it is complete, `unused` what was fed beyond its end.
    """

    ended: bool
    unused: bytes

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the plain bytes that become known with `data`, up to the first broken byte."""


class _GzipBlock:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self.ended = False
        self.unused = b""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        plain = b""
        # A full piece may leave bytes in the decoder that need no more input.
        while not self.ended and (data or len(plain) == GZIP_PIECE_BYTES):
            # A copy of its state costs a few microseconds.
            before = self._inflate.copy()
            try:
                plain = self._inflate.decompress(data, GZIP_PIECE_BYTES)
            except zlib.error as error:
                yield _readable_part(before, data)
                raise BrokenBlockError(str(error)) from error
            data = self._inflate.unconsumed_tail
            self.ended = self._inflate.eof
            self.unused = self._inflate.unused_data
            if plain:
                yield plain


def _readable_part(inflate: Any, data: bytes) -> bytes:
    """Return what precedes the broken byte; a failing call gives back nothing of its input."""
    plain = bytearray()
    with contextlib.suppress(zlib.error):
        for at in range(len(data)):
            plain += inflate.decompress(data[at : at + 1])
    return bytes(plain)


class _ZstdBlock:
    def __init__(self) -> None:
        import zstandard

        self._limited = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._frame = self._limited.decompressobj()
        self._head = b""
        self._broken = zstandard.ZstdError
        self.ended = False
        self.unused = b""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            crumb = data[at : at + ZSTD_CRUMB_BYTES]
            at += len(crumb)
            self._head += crumb[: MAGIC_BYTES - len(self._head)]
            try:
                plain = self._frame.decompress(crumb)
            except self._broken as error:
                raise BrokenBlockError(str(error)) from error
            if plain:
                yield plain
            if not self._frame.eof:
                continue
            at -= len(self._frame.unused_data)
            if not is_skippable(self._head):
                self.ended = True
                self.unused = data[at:]
                return
            # It says what the frame behind it holds: the two are one block.
            self._frame, self._head = self._limited.decompressobj(), b""


def block_decoder(codec: Codec) -> BlockDecoder:
    """Return a decoder of the next member or frame."""
    return _GzipBlock() if codec == "gzip" else _ZstdBlock()


class PlainStream:
    """Iterates over the plain bytes from a block on; then `tear` tells how the file ended.

    Members and frames that follow one another are joined.
    """

    def __init__(self, file: TraceFile, start: int = 0, end: int | None = None) -> None:
        self.file = file
        self.start = start
        self.end = end
        self.tear: Tear | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.tear = None
        with readable(self.file), self.file.opened() as raw:
            raw.seek(self.start)
            yield from self._plain(raw) if self.file.codec == "plain" else self._blocks(raw)
            if self.tear is None and self.file.copy:
                self.tear = self.file.copy.tear

    def _steps(self, raw: BinaryIO, size: int) -> Iterator[bytes]:
        offset = self.start
        while step := raw.read(size if self.end is None else min(size, self.end - offset)):
            offset += len(step)
            yield step

    def _plain(self, raw: BinaryIO) -> Iterator[bytes]:
        yield from self._steps(raw, PLAIN_STEP_BYTES)

    def _blocks(self, raw: BinaryIO) -> Iterator[bytes]:
        codec = self.file.codec
        decoder: BlockDecoder | None = None
        began = offset = self.start
        for read in self._steps(raw, STEP_BYTES):
            step = read
            offset += len(step)
            while step:
                if decoder is None:
                    step = step.lstrip(b"\0")
                    if not step:
                        break
                    decoder, began = block_decoder(codec), offset - len(step)
                try:
                    yield from decoder.pieces(step)
                except BrokenBlockError as error:
                    reason = f"broken {codec} data ({error}) in the block"
                    self.tear = Tear(began, reason, damaged=True)
                    return
                step = decoder.unused if decoder.ended else b""
                if decoder.ended:
                    decoder = None
        if decoder is not None:
            self.tear = Tear(began, f"the file ends inside the {codec} block that begins")
