"""Archives of traces, tar and ZIP: their members copied, those that are made to harm refused."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.decompression import PlainStream
from dftrace_ai.analysis.reading.importing.archive_members import (
    BrokenArchiveError,
    BrokenMemberError,
    MoreThanArchiveError,
    is_zip,
    tar_members,
    zip_members,
)
from dftrace_ai.analysis.reading.importing.copies import CopiedText
from dftrace_ai.analysis.reading.source import Source, read_head
from dftrace_ai.analysis.reading.trace_file import (
    MAGIC_BYTES,
    Copy,
    SkippedFile,
    Tear,
    codec_of,
)
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import PROFILE_SUFFIXES, TRACE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dftrace_ai.analysis.reading.importing.archive_members import Member
    from dftrace_ai.analysis.reading.importing.copies import Copied
    from dftrace_ai.analysis.reading.trace_file import TraceFile

__all__ = ["opened_archive"]

ARCHIVE_SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")

MOST_MEMBERS: Final = 100_000
MOST_NAME_LETTERS: Final = 1024

# Traces unpack to 10 to 30 times their size. Copies of what is packed by itself take their own.
MOST_TIMES: Final = 200
MOST_TIMES_KEPT: Final = 4
CUT_OFF: Final = "the archive ends within it,"

SPARE_BYTES: Final = 64 * 1024 * 1024


class _TooMuchError(Exception):
    """The archive is made to fill the disk, or to take for ever."""


def opened_archive(source: Source, look: Callable[[Source], list[TraceFile]]) -> list[TraceFile]:
    """Copy the traces that an archive holds, and return them; `look` finds those of a copy.

    Only what is called as traces are is looked at. Nothing is written under a name that the
    archive has.

    Raises:
        TraceError: it cannot be read, holds no traces, or unpacks to far more than it is.
        DftraceError: there is no room for the copies.
    """
    path, head = source.path, source.head
    stream = PlainStream(source.file)
    skipped: list[SkippedFile] = []
    files: list[TraceFile] = []
    try:
        with source.file.opened() as raw:
            archive = _Archive(path, os.fstat(raw.fileno()).st_size, files, skipped, look)
            if is_zip(head.plain):
                for member in zip_members(raw):
                    archive.add(member._replace(chunks=archive.counted(member.chunks)))
            else:
                for member in tar_members(archive.counted(stream)):
                    archive.add(member)
    except MoreThanArchiveError as error:
        skipped.append(SkippedFile(str(path), str(error)))
    except BrokenArchiveError as error:
        reason = stream.tear or error
        skipped.append(SkippedFile(str(path), f"{reason}; what comes before it is read"))
    except _TooMuchError as error:
        raise TraceError(f"{path}: {error}") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    if not files and not skipped:
        raise TraceError(f"{path}: no trace files ({', '.join(TRACE_SUFFIXES)}) in this archive")
    source.skipped.extend(skipped)
    # Profiles are left out where there are traces of ours, as in directories.
    ours = [file for file in files if file.path.name.endswith(TRACE_SUFFIXES)]
    return ours or files


class _Archive:
    """The state of reading one archive."""

    def __init__(
        self,
        path: Path,
        size: int,
        files: list[TraceFile],
        skipped: list[SkippedFile],
        look: Callable[[Source], list[TraceFile]],
    ) -> None:
        self.path = path
        self.files = files
        self.skipped = skipped
        self.traces_of = look
        self.names: set[PurePosixPath] = set()
        self.members = 0
        self.room = MOST_TIMES * size + SPARE_BYTES
        self.room_for_copies = MOST_TIMES_KEPT * size + SPARE_BYTES

    def add(self, member: Member) -> None:
        """Add the trace that a member is, or say why it is none; pass over all others.

        Raises:
            BrokenArchiveError: the archive ends within it; what there is of it was added.
        """
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise BrokenArchiveError(f"more than {MOST_MEMBERS:,} members")
        if not member.name.endswith((*TRACE_SUFFIXES, *PROFILE_SUFFIXES, *ARCHIVE_SUFFIXES)):
            return
        name = PurePosixPath(member.name[:MOST_NAME_LETTERS])
        shown = Path(self.path, *(part for part in name.parts if part != "/"))
        refused = member.refused or self.refusal(member.name, name)
        if refused:
            self.skipped.append(SkippedFile(str(shown), refused))
            return
        self.names.add(name)
        try:
            copied, torn = self.copied(member)
        except BrokenMemberError as error:
            self.skipped.append(SkippedFile(str(shown), str(error)))
            return
        tear = Tear(copied.path.stat().st_size, CUT_OFF) if torn else None
        self.look(shown, Copy(copied.path, copied, tear=tear))
        if torn:
            raise torn

    def refusal(self, written: str, name: PurePosixPath) -> str:
        """Return why a name is not taken, or ""."""
        if written.endswith(ARCHIVE_SUFFIXES):
            return "an archive within an archive; unpack that first"
        if name.is_absolute() or ".." in name.parts or "\0" in written:
            return "a name that leads out of the archive"
        if len(written) > MOST_NAME_LETTERS:
            return "a name that is too long"
        return "stands twice in the archive" if name in self.names else ""

    def copied(self, member: Member) -> tuple[Copied, BrokenArchiveError | None]:
        """Copy a member, and tell where the archive ends within it: as it is where it is packed."""
        chunks = iter(member.chunks)
        start = b""
        torn: BrokenArchiveError | None = None
        with CopiedText() as text:
            try:
                while len(start) < MAGIC_BYTES and (chunk := next(chunks, b"")):
                    start += chunk
                text.is_packed = codec_of(start) != "plain"
                self.keep(text, start)
                for chunk in chunks:
                    self.keep(text, chunk)
            except BrokenArchiveError as error:
                torn = error
        return text.copied, torn

    def look(self, shown: Path, copy: Copy) -> None:
        """Look at the head of a copy."""
        try:
            head = read_head(shown, copy.path)
            self.files += self.traces_of(Source(shown, head, self.skipped, copy=copy))
        except TraceError as error:
            self.skipped.append(SkippedFile.because_of(error, shown))

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass on what was unpacked, as long as it is not far too much."""
        for chunk in chunks:
            self.room -= len(chunk)
            if self.room < 0:
                raise _TooMuchError(
                    f"unpacks to more than {MOST_TIMES} times its size, which no traces do"
                )
            yield chunk

    def keep(self, text: CopiedText, chunk: bytes) -> None:
        """Add to a copy, and count what it takes."""
        before = text.packed_bytes
        text.add(chunk)
        self.room_for_copies -= text.packed_bytes - before
        if self.room_for_copies < 0:
            raise _TooMuchError(
                f"its traces take more than {MOST_TIMES_KEPT} times its size; unpack it, and "
                "give the directory"
            )
