"""The beginning of a file: how it is compressed, and what tells which traces it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.analysis.reading.decompression import BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.reader import HEADER_LINES, header_in
from dftrace_ai.analysis.reading.remote import RemotePath
from dftrace_ai.analysis.reading.trace_file import (
    TraceFile,
    codec_of,
    codec_of_name,
    keep,
    opened,
)
from dftrace_ai.errors import TraceError, readable
from dftrace_ai.trace_format.header_and_footer import MERGED_LINE

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace_file import Codec, Copy, HeldFile, KeptFile, SkippedFile

HEAD_BYTES = 64 * 1024


class Head(NamedTuple):
    """How a file is compressed, its first bytes unpacked, and whether it has no others.

    `kept` has it open, if it was read where it is called.
    """

    codec: Codec
    plain: bytes
    whole: bool
    kept: KeptFile | None = None


class Source(NamedTuple):
    """A file that may hold traces. `skipped` gets what of it is none; others as of `TraceFile`."""

    path: Path
    head: Head
    skipped: list[SkippedFile]
    asked_for: bool = False
    copy: Copy | None = None
    held: HeldFile | None = None

    @property
    def file(self) -> TraceFile:
        """The file as a trace of lines."""
        first, _, others = self.head.plain.partition(b"\n")
        named = others.startswith(b'{"name":"process_name"')
        framed = first.strip() == b"["
        return TraceFile(
            self.path,
            self.head.codec,
            framed,
            named,
            self.asked_for,
            self.copy,
            self.held,
            header_in(self.head.plain.split(b"\n", HEADER_LINES)[:-1]) if named else None,
            self.head.kept,
            others.startswith(MERGED_LINE),
        )


def read_head(path: Path, content: Path | None = None) -> Head:
    """Read the beginning of a file, which is at `content` if not at `path`.

    Raises:
        TraceError: it cannot be read, or is compressed and broken from the start.
    """
    kept = None
    with readable(path):
        file = opened(content or path)
        try:
            head = file.read(HEAD_BYTES)
        finally:
            if content not in (None, path) or isinstance(path, RemotePath):
                file.close()
            else:
                kept = keep(path, file)
    # One that has nothing yet may have something when it is read.
    codec = codec_of(head) if head else codec_of_name(path.name)
    plain = head if codec == "plain" else _plain_head(path, codec, head)
    return Head(codec, plain, max(len(head), len(plain)) < HEAD_BYTES, kept)


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
