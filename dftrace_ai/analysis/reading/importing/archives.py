"""Archives of traces, tar and ZIP: their members copied, those that are made to harm refused.

Read in little memory whatever they say, by readers of our own: tarfile holds in memory whatever a
header names and ends without a word where one is broken, and zipfile reads a directory of any size
at once. Loaded where there is an archive.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from dftrace_ai.analysis.reading.decompression import PlainStream
from dftrace_ai.analysis.reading.importing.copies import CopiedText
from dftrace_ai.analysis.reading.importing.file_kinds import (
    BLOCK,
    END_MAGIC,
    LOCAL_MAGIC,
    is_tar_header,
    is_zip,
    tar_number,
)
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

    from dftrace_ai.analysis.reading.importing.copies import Copied
    from dftrace_ai.analysis.reading.trace_file import TraceFile


# Names and other facts of a member that have no room in its header.
MOST_FACTS_BYTES: Final = 64 * 1024

REFUSED_KINDS: Final = {b"1": "a link", b"2": "a link", b"S": "a sparse file"}

# The end of the directory, behind which is a comment of any bytes.
END: Final = struct.Struct("<4s4H2LH")
LONGEST_COMMENT: Final = 65_535

# For what is larger or more than its fields hold.
END_64: Final = struct.Struct("<4sQ2H2L4Q")
END_64_AT: Final = struct.Struct("<4sLQL")

ENTRY: Final = struct.Struct("<4s6H3L5H2L")
ENTRY_MAGIC: Final = b"PK\1\2"
LOCAL: Final = struct.Struct("<4s5H3L2H")

STORED: Final = 0
DEFLATED: Final = 8
ENCRYPTED: Final = 1
UTF_8: Final = 1 << 11
FULL: Final = 0xFFFF_FFFF
LARGEST_PLACE: Final = 1 << 62

ZIP_STEP_BYTES: Final = 64 * 1024
PIECE_BYTES: Final = 1024 * 1024


class BrokenArchiveError(Exception):
    """The archive cannot be read beyond a place."""


class MoreThanArchiveError(BrokenArchiveError):
    """All members were read, and the file holds more than that archive."""


class BrokenMemberError(Exception):
    """A member cannot be read; those behind it can."""


class Member(NamedTuple):
    """A member: its name as the archive has it, why it is refused or "", and its bytes.

    These are to be taken before the next member is asked for, and may raise `BrokenMemberError`.
    """

    name: str
    refused: str
    chunks: Iterator[bytes]


def tar_members(chunks: Iterable[bytes]) -> Iterator[Member]:
    """Yield the members of a tar, whose bytes come unpacked; directories left out.

    Raises:
        BrokenArchiveError: it cannot be read beyond a place.
    """
    source = _Source(chunks)
    facts: dict[str, str] = {}
    while True:
        header = source.take(BLOCK)
        if not header.strip(b"\0"):
            if source.goes_on():
                raise MoreThanArchiveError("what stands behind the end of the archive is not read")
            return
        if not is_tar_header(header):
            raise BrokenArchiveError("broken: what should be the header of a member is none")
        size = tar_number(header[124:136])
        if size is None:
            raise BrokenArchiveError("broken: the size of a member is none")
        kind = header[156:157]
        if kind in (b"x", b"L", b"K", b"g"):
            if size > MOST_FACTS_BYTES:
                raise BrokenArchiveError("broken: the name of a member is endless")
            text = source.take(size)
            source.skip(-size % BLOCK)
            if kind == b"x":
                facts.update(_records(text))
            elif kind == b"L":
                facts["path"] = _text(text.rstrip(b"\0"))
            continue
        digits = facts.get("size", "")
        size = int(digits) if digits.isdecimal() and len(digits) < 19 else size
        refused = "" if kind in (b"0", b"\0", b"7") else REFUSED_KINDS.get(kind, "no regular file")
        if any(key.startswith("GNU.sparse") for key in facts):
            refused = REFUSED_KINDS[b"S"]
        content = source.content(size)
        if kind != b"5":
            yield Member(facts.get("path") or _tar_name(header), refused, content)
        for _ in content:
            pass
        source.skip(-size % BLOCK)
        facts = {}


def _tar_name(header: bytes) -> str:
    name, prefix = header[:100].partition(b"\0")[0], b""
    if header[257:263] == b"ustar\0":
        prefix = header[345:500].partition(b"\0")[0]
    return _text(prefix + b"/" + name if prefix else name)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _records(text: bytes) -> Iterator[tuple[str, str]]:
    """Yield the facts of a member: ``12 key=value`` and a line break, 12 bytes in all."""
    while text:
        digits, _, rest = text.partition(b" ")
        size = int(digits) if digits.isdigit() and len(digits) < 7 else 0
        if size <= len(digits):
            return
        key, _, value = rest[: size - len(digits) - 1].rstrip(b"\n").partition(b"=")
        yield _text(key), _text(value)
        text = text[size:]


class _Source:
    """Bytes that are taken in pieces of any length."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = b""

    def take(self, size: int) -> bytes:
        """Return so many bytes; raises `BrokenArchiveError` where there are fewer."""
        return b"".join(self.content(size))

    def skip(self, size: int) -> None:
        for _ in self.content(size):
            pass

    def goes_on(self) -> bool:
        """Return whether there is anything more than zero bytes."""
        return any(piece.strip(b"\0") for piece in chain([self._held], self._chunks))

    def content(self, size: int) -> Iterator[bytes]:
        """Yield so many bytes, in pieces; raises `BrokenArchiveError` where there are fewer."""
        while size:
            if not self._held:
                piece = next(self._chunks, None)
                if piece is None:
                    raise BrokenArchiveError("cut: it ends too early")
                self._held = piece
            part, self._held = self._held[:size], self._held[size:]
            size -= len(part)
            yield part


class _Entry(NamedTuple):
    name: str
    refused: str
    method: int
    crc: int
    packed: int
    size: int
    at: int


def zip_members(raw: BinaryIO) -> Iterator[Member]:
    """Yield the members of a ZIP, directories left out.

    Raises:
        BrokenArchiveError: it has no directory, or that is none from some place on.
        MoreThanArchiveError: something stands before it or behind it.
    """
    at, count, before, behind = _directory(raw)
    at += before
    for _ in range(count):
        entry, at = _entry(raw, at)
        if not entry.name.endswith("/"):
            found = entry._replace(at=entry.at + before)
            yield Member(entry.name, entry.refused, _zip_content(raw, found))
    if before or behind:
        where = "before" if before else "behind"
        raise MoreThanArchiveError(
            f"{before or behind:,} bytes {where} the archive are not read, as of files that were "
            "put together"
        )


def _read_at(raw: BinaryIO, at: int, size: int) -> bytes:
    text = b""
    if at < LARGEST_PLACE:
        raw.seek(at)
        text = raw.read(size)
    if len(text) < size:
        raise BrokenArchiveError("broken: its directory leads behind its end")
    return text


def _directory(raw: BinaryIO) -> tuple[int, int, int, int]:
    """Return place and entries of the directory, and bytes before and behind the archive."""
    size = raw.seek(0, 2)
    width = min(size, END.size + LONGEST_COMMENT)
    tail = _read_at(raw, size - width, width)
    end = tail.rfind(END_MAGIC)
    if end < 0 or end + END.size > width:
        raise BrokenArchiveError("cut: the directory at its end is missing")
    _, _, _, _, count, listed, at, comment = END.unpack_from(tail, end)
    behind = max(0, width - end - END.size - comment)
    locator = end - END_64_AT.size
    is_64 = locator >= 0 and tail.startswith(b"PK\6\7", locator)
    before = 0 if is_64 else max(0, size - width + end - listed - at)
    if is_64 and (at == FULL or count == FULL >> 16):
        end_at = END_64_AT.unpack_from(tail, locator)[2]
        if end_at > size:
            raise BrokenArchiveError("broken: its directory leads behind its end")
        found = END_64.unpack(_read_at(raw, end_at, END_64.size))
        if found[0] == b"PK\6\6":
            count, at = found[7], found[9]
    return at, count, before, behind


def _entry(raw: BinaryIO, at: int) -> tuple[_Entry, int]:
    """Return an entry of the directory, and where the next one is."""
    fields = ENTRY.unpack(_read_at(raw, at, ENTRY.size))
    magic, _, _, flags, method, _, _, crc, packed, size = fields[:10]
    name_bytes, extra_bytes, comment_bytes, _, _, outer, local = fields[10:]
    if magic != ENTRY_MAGIC:
        raise BrokenArchiveError("broken: what should be an entry of its directory is none")
    text = _read_at(raw, at + ENTRY.size, name_bytes + extra_bytes)
    name = text[:name_bytes].decode("utf-8" if flags & UTF_8 else "cp437", "replace")
    size, packed, local = _long(text[name_bytes:], size, packed, local)
    refused = ""
    if flags & ENCRYPTED:
        refused = "encrypted"
    elif method not in (STORED, DEFLATED):
        refused = f"compressed by method {method}, which is not read"
    elif stat.S_ISLNK(outer >> 16):
        refused = "a link"
    entry = _Entry(name, refused, method, crc, packed, size, local)
    return entry, at + ENTRY.size + name_bytes + extra_bytes + comment_bytes


def _long(extra: bytes, *values: int) -> tuple[int, ...]:
    """Return sizes and place of a member, those that their fields do not hold from `extra`."""
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        if kind == 1:
            numbers = (number for (number,) in struct.iter_unpack("<Q", _eights(extra[4:][:size])))
            return tuple(next(numbers, value) if value == FULL else value for value in values)
        extra = extra[4 + size :]
    return values


def _eights(text: bytes) -> bytes:
    return text[: len(text) // 8 * 8]


def _zip_content(raw: BinaryIO, entry: _Entry) -> Iterator[bytes]:
    try:
        magic, *_, name_bytes, extra_bytes = LOCAL.unpack(_read_at(raw, entry.at, LOCAL.size))
    except BrokenArchiveError as error:
        raise BrokenMemberError("it is not where the directory of the archive says") from error
    if magic != LOCAL_MAGIC:
        raise BrokenMemberError("it is not where the directory of the archive says")
    at = entry.at + LOCAL.size + name_bytes + extra_bytes
    crc = size = 0
    for piece in _unpacked(raw, entry, at):
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        yield piece
    if (crc, size) != (entry.crc, entry.size):
        raise BrokenMemberError("broken data in the archive")


def _unpacked(raw: BinaryIO, entry: _Entry, at: int) -> Iterator[bytes]:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    left = entry.packed
    while left:
        # Whoever takes the pieces may ask for other places meanwhile.
        raw.seek(at)
        step = raw.read(min(left, ZIP_STEP_BYTES))
        if not step:
            raise BrokenMemberError("the archive ends within it")
        at += len(step)
        left -= len(step)
        if entry.method == STORED:
            yield step
            continue
        piece = b""
        while step or len(piece) == PIECE_BYTES:
            try:
                piece = inflate.decompress(step, PIECE_BYTES)
            except zlib.error as error:
                raise BrokenMemberError("broken data in the archive") from error
            step = inflate.unconsumed_tail
            if piece:
                yield piece
            if inflate.eof:
                return


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

    Only what is called as traces are is looked at. Nothing is written under a name that the archive
    has. A TraceError where it holds none or unpacks to far more than it is, or there is no room.
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
