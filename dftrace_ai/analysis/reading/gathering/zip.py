"""The members of a ZIP, by its directory, in little memory whatever it says."""

from __future__ import annotations

import stat
import struct
import zlib
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from dftrace_ai.analysis.reading.gathering.members import (
    BrokenArchiveError,
    BrokenMemberError,
    Member,
    MoreThanArchiveError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_zip", "zip_members"]

# The end of the directory, behind which is a comment of any bytes.
END: Final = struct.Struct("<4s4H2LH")
END_MAGIC: Final = b"PK\5\6"
LONGEST_COMMENT: Final = 65_535

# For what is larger or more than its fields hold.
END_64: Final = struct.Struct("<4sQ2H2L4Q")
END_64_AT: Final = struct.Struct("<4sLQL")

ENTRY: Final = struct.Struct("<4s6H3L5H2L")
ENTRY_MAGIC: Final = b"PK\1\2"
LOCAL: Final = struct.Struct("<4s5H3L2H")
LOCAL_MAGIC: Final = b"PK\3\4"

STORED: Final = 0
DEFLATED: Final = 8
ENCRYPTED: Final = 1
UTF_8: Final = 1 << 11
FULL: Final = 0xFFFF_FFFF
LARGEST_PLACE: Final = 1 << 62

STEP_BYTES: Final = 64 * 1024
PIECE_BYTES: Final = 1024 * 1024


class _Entry(NamedTuple):
    name: str
    refused: str
    method: int
    crc: int
    packed: int
    size: int
    at: int


def is_zip(head: bytes) -> bool:
    """Return whether a file begins as a ZIP does."""
    return head.startswith((LOCAL_MAGIC, END_MAGIC))


def zip_members(raw: BinaryIO) -> Iterator[Member]:
    """Yield the members of a ZIP, directories left out.

    Args:
        raw: the file.

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
            yield Member(entry.name, entry.refused, _content(raw, found))
    if before or behind:
        where = "before" if before else "behind"
        raise MoreThanArchiveError(
            f"{before or behind:,} bytes {where} the archive are not read, as of files that were "
            "put together"
        )


def _read(raw: BinaryIO, at: int, size: int) -> bytes:
    text = b""
    if at < LARGEST_PLACE:
        raw.seek(at)
        text = raw.read(size)
    if len(text) < size:
        raise BrokenArchiveError("broken: its directory leads behind its end")
    return text


def _directory(raw: BinaryIO) -> tuple[int, int, int, int]:
    """Return where the directory is by what it says, and how many entries it has.

    Also how many bytes stand before the archive, and behind it.
    """
    size = raw.seek(0, 2)
    width = min(size, END.size + LONGEST_COMMENT)
    tail = _read(raw, size - width, width)
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
        found = END_64.unpack(_read(raw, end_at, END_64.size))
        if found[0] == b"PK\6\6":
            count, at = found[7], found[9]
    return at, count, before, behind


def _entry(raw: BinaryIO, at: int) -> tuple[_Entry, int]:
    """Return an entry of the directory, and where the next one is."""
    fields = ENTRY.unpack(_read(raw, at, ENTRY.size))
    magic, _, _, flags, method, _, _, crc, packed, size = fields[:10]
    name_bytes, extra_bytes, comment_bytes, _, _, outer, local = fields[10:]
    if magic != ENTRY_MAGIC:
        raise BrokenArchiveError("broken: what should be an entry of its directory is none")
    text = _read(raw, at + ENTRY.size, name_bytes + extra_bytes)
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


def _content(raw: BinaryIO, entry: _Entry) -> Iterator[bytes]:
    try:
        magic, *_, name_bytes, extra_bytes = LOCAL.unpack(_read(raw, entry.at, LOCAL.size))
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
        step = raw.read(min(left, STEP_BYTES))
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
