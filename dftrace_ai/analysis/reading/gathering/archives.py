"""Archives of traces, tar and ZIP: their members copied, those that are made to harm refused."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.reading.decompression import PlainStream
from dftrace_ai.analysis.reading.gathering.copies import CopyFolder, PackedLines
from dftrace_ai.analysis.reading.gathering.members import (
    BrokenArchiveError,
    BrokenMemberError,
    MoreThanArchiveError,
)
from dftrace_ai.analysis.reading.gathering.tar import is_tar, tar_members
from dftrace_ai.analysis.reading.gathering.zip import is_zip, zip_members
from dftrace_ai.analysis.reading.opening import read_head, traces_of
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.analysis.reading.trace_file import (
    MAGIC_BYTES,
    Copy,
    SkippedFile,
    Tear,
    TraceFile,
    codec_of,
)
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import PROFILE_SUFFIXES, TRACE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.reading.gathering.members import Member
    from dftrace_ai.analysis.reading.opening import Head

__all__ = ["OpenedArchive", "is_archive", "open_archive"]

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


class OpenedArchive(NamedTuple):
    """What an archive holds.

    Attributes:
        files: the traces.
        skipped: members that cannot be read as traces, and the archive where it is broken.
    """

    files: list[TraceFile]
    skipped: list[SkippedFile]


def is_archive(head: Head) -> bool:
    """Return whether a file that begins so is an archive."""
    return is_zip(head.plain) or is_tar(head.plain)


def open_archive(path: Path, head: Head) -> OpenedArchive:
    """Copy the traces that an archive holds, and look at their heads.

    Only what is called as traces are is looked at. Nothing is written under a name that the
    archive has.

    Args:
        path: the archive.
        head: its beginning.

    Raises:
        TraceError: it cannot be read, holds no traces, or unpacks to far more than it is.
        DftraceError: there is no room for the copies.
    """
    opened = OpenedArchive([], [])
    stream = PlainStream(TraceFile(path, head.codec, framed=False, named=False))
    try:
        with open_regular(path) as raw:
            archive = _Archive(path, os.fstat(raw.fileno()).st_size, opened)
            if is_zip(head.plain):
                for member in zip_members(raw):
                    archive.add(member._replace(chunks=archive.counted(member.chunks)))
            else:
                for member in tar_members(archive.counted(stream)):
                    archive.add(member)
    except MoreThanArchiveError as error:
        opened.skipped.append(SkippedFile(str(path), str(error)))
    except BrokenArchiveError as error:
        reason = stream.tear or error
        opened.skipped.append(SkippedFile(str(path), f"{reason}; what comes before it is read"))
    except _TooMuchError as error:
        raise TraceError(f"{path}: {error}") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    if not opened.files and not opened.skipped:
        raise TraceError(f"{path}: no trace files ({', '.join(TRACE_SUFFIXES)}) in this archive")
    return _without_doubles(opened)


def _without_doubles(opened: OpenedArchive) -> OpenedArchive:
    """Leave profiles out where there are traces of ours, as in directories."""
    ours = [file for file in opened.files if file.path.name.endswith(TRACE_SUFFIXES)]
    return OpenedArchive(ours or opened.files, opened.skipped)


class _Archive:
    """The state of reading one archive."""

    def __init__(self, path: Path, size: int, opened: OpenedArchive) -> None:
        self.path = path
        self.opened = opened
        self.folder = CopyFolder()
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
            self.opened.skipped.append(SkippedFile(str(shown), refused))
            return
        self.names.add(name)
        copy = self.folder.new_file()
        try:
            self.write(member, copy)
        except BrokenMemberError as error:
            self.opened.skipped.append(SkippedFile(str(shown), str(error)))
            copy.unlink()
        except BrokenArchiveError:
            size = copy.stat().st_size
            self.look(shown, Copy(copy, self.folder, tear=Tear(size, CUT_OFF)))
            raise
        else:
            self.look(shown, Copy(copy, self.folder))

    def refusal(self, written: str, name: PurePosixPath) -> str:
        """Return why a name is not taken, or ""."""
        if written.endswith(ARCHIVE_SUFFIXES):
            return "an archive within an archive; unpack that first"
        if name.is_absolute() or ".." in name.parts or "\0" in written:
            return "a name that leads out of the archive"
        if len(written) > MOST_NAME_LETTERS:
            return "a name that is too long"
        return "stands twice in the archive" if name in self.names else ""

    def write(self, member: Member, copy: Path) -> None:
        """Copy a member: as it is where it is packed, else packed as lines."""
        chunks = iter(member.chunks)
        start = b""
        while len(start) < MAGIC_BYTES and (chunk := next(chunks, b"")):
            start += chunk
        with self.folder.writing():
            if codec_of(start) == "plain":
                with PackedLines(copy) as packed:
                    packed.add(start)
                    for chunk in chunks:
                        packed.add(chunk)
                self.keep(packed.file_bytes)
                return
            with copy.open("xb") as out:
                self.keep(out.write(start))
                for chunk in chunks:
                    self.keep(out.write(chunk))

    def look(self, shown: Path, copy: Copy) -> None:
        """Look at the head of a copy."""
        try:
            head = read_head(shown, copy.path)
            files = traces_of(shown, head, self.opened.skipped, copy=copy)
        except TraceError as error:
            self.opened.skipped.append(SkippedFile.because_of(error, shown))
        else:
            self.opened.files.extend(files)
            if any(file.content == copy.path for file in files):
                return
        copy.path.unlink()

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass on what was unpacked, as long as it is not far too much."""
        for chunk in chunks:
            self.room -= len(chunk)
            if self.room < 0:
                raise _TooMuchError(
                    f"unpacks to more than {MOST_TIMES} times its size, which no traces do"
                )
            yield chunk

    def keep(self, size: int) -> None:
        """Count what the copies take."""
        self.room_for_copies -= size
        if self.room_for_copies < 0:
            raise _TooMuchError(
                f"its traces take more than {MOST_TIMES_KEPT} times its size; unpack it, and "
                "give the directory"
            )
