"""Looking at the head of a file: whether it holds traces, and how it is compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.analysis.reading.decompression import BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.forms import form_of, other_told
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.analysis.reading.trace_file import TraceFile, codec_of, codec_of_name
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import is_trace

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace_file import Codec, Copy, HeldFile, SkippedFile

__all__ = ["Head", "read_head", "traces_of"]

HEAD_BYTES = 64 * 1024


class Head(NamedTuple):
    """The beginning of a file.

    Attributes:
        codec: how it is compressed.
        plain: its first bytes, unpacked.
        whole: it has no others.
    """

    codec: Codec
    plain: bytes
    whole: bool


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
    # One that has nothing yet may have something when it is read.
    codec = codec_of(head) if head else codec_of_name(path.name)
    plain = head if codec == "plain" else _plain_head(path, codec, head)
    return Head(codec, plain, max(len(head), len(plain)) < HEAD_BYTES)


def traces_of(
    path: Path,
    head: Head,
    skipped: list[SkippedFile],
    *,
    asked_for: bool = False,
    copy: Copy | None = None,
    held: HeldFile | None = None,
) -> list[TraceFile]:
    """Return the traces of a file that begins with a head: one, or as many as documents in it.

    An empty file and one that is cut before its first line count as traces without
    events: that is what a process leaves that was killed in its first write. JSON that is no
    event on each line, and what torch.profiler has written, is read whole and copied as lines.

    Args:
        path: what it is called.
        head: its beginning.
        skipped: gets what of the file is no trace.
        asked_for: see `TraceFile`.
        copy: where it is, if not at `path`.
        held: see `TraceFile`.

    Raises:
        TraceError: it cannot be read, or is no trace.
        DftraceError: there is no room for a copy.
    """
    first, _, others = head.plain.partition(b"\n")
    named = others.startswith(b'{"name":"process_name"')
    framed = first.strip() == b"["
    file = TraceFile(path, head.codec, framed, named, asked_for, copy, held)
    called = is_trace(path.name)
    form = "lines" if framed and named else form_of(head.plain, whole=head.whole, named=called)
    if form == "none":
        raise TraceError(f"{path}: not a trace file: {other_told(head.plain)}")
    if form == "lines":
        return [file]
    from dftrace_ai.analysis.reading.gathering.profiles import opened_profiles

    return opened_profiles(file, skipped, framed=form == "documents")


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
