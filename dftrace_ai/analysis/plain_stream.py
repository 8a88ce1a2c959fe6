"""The plain bytes of a trace file of any codec, read up to where the file is torn."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.files import Codec, TraceFile

__all__ = ["PlainStream", "Tear", "block_decoder"]

# Compressed bytes per step: what one step can inflate to stays small.
STEP_BYTES = 64 * 1024
PLAIN_STEP_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Tear:
    """Where a file stops being readable.

    Attributes:
        offset: byte of the file.
        reason: what is wrong there, for people.
    """

    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} at byte {self.offset}"


class BlockDecoder(Protocol):
    """A decoder of one gzip member or zstd frame, as zlib and zstandard make them."""

    @property
    def eof(self) -> bool:
        """Whether the block has ended."""

    @property
    def unused_data(self) -> bytes:
        """What was fed beyond the end of the block."""

    def decompress(self, data: bytes, /) -> bytes:
        """Return the plain bytes that became known."""


def block_decoder(codec: Codec) -> BlockDecoder:
    """Return a decoder of the next member or frame."""
    if codec == "gzip":
        return zlib.decompressobj(wbits=31)
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def decoding_errors(codec: Codec) -> type[Exception]:
    """Return the exception that a decoder of this codec raises for broken data."""
    if codec == "gzip":
        return zlib.error
    import zstandard

    return zstandard.ZstdError


class PlainStream:
    """Iterates over the plain bytes of a trace file; after that, `tear` tells how it ended.

    Members and frames that follow one another are joined. Zero bytes behind the last
    one, which file systems leave after a power cut, are passed over.

    Args:
        file: the file to read.

    Raises:
        TraceError: while iterating, when the operating system refuses to read.

    Example::

        stream = PlainStream(file)
        size = sum(len(chunk) for chunk in stream)
        if stream.tear:
            print(f"{file}: {stream.tear}")
    """

    def __init__(self, file: TraceFile) -> None:
        self.file = file
        self.tear: Tear | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.tear = None
        try:
            with self.file.path.open("rb") as raw:
                yield from self._plain(raw) if self.file.codec == "plain" else self._blocks(raw)
        except OSError as error:
            raise TraceError(f"{self.file}: cannot be read: {error.strerror}") from error

    def _plain(self, raw: BinaryIO) -> Iterator[bytes]:
        while chunk := raw.read(PLAIN_STEP_BYTES):
            yield chunk

    def _blocks(self, raw: BinaryIO) -> Iterator[bytes]:
        codec = self.file.codec
        broken = decoding_errors(codec)
        decoder: BlockDecoder | None = None
        began = offset = 0
        while step := raw.read(STEP_BYTES):
            end = offset + len(step)
            while step:
                if decoder is None:
                    step = step.lstrip(b"\0")
                    if not step:
                        break
                    decoder, began = block_decoder(codec), end - len(step)
                # Only zlib can go back: a copy of its state costs a few microseconds.
                copy = getattr(decoder, "copy", None)
                before = copy() if copy else None
                try:
                    plain = decoder.decompress(step)
                except broken as error:
                    if before is not None:
                        yield _readable_part(before, step)
                    self.tear = Tear(began, f"broken {codec} data ({error}) in the block")
                    return
                if plain:
                    yield plain
                step = decoder.unused_data if decoder.eof else b""
                if decoder.eof:
                    decoder = None
            offset = end
        if decoder is not None:
            self.tear = Tear(began, f"the file ends inside the {codec} block that begins")


def _readable_part(decoder: BlockDecoder, step: bytes) -> bytes:
    """Return what precedes the broken byte; a failing call gives back nothing of its input."""
    plain = bytearray()
    with contextlib.suppress(zlib.error):
        for at in range(len(step)):
            plain += decoder.decompress(step[at : at + 1])
    return bytes(plain)
