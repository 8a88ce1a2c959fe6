"""The members of a tar, read once from beginning to end, in little memory whatever it says."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.gathering.members import (
    BrokenArchiveError,
    Member,
    MoreThanArchiveError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["is_tar", "tar_members"]

BLOCK: Final = 512

# Names and other facts of a member that have no room in its header.
MOST_FACTS_BYTES: Final = 64 * 1024

MAGIC: Final = slice(257, 262)
KINDS: Final = {b"1": "a link", b"2": "a link", b"S": "a sparse file"}


def is_tar(head: bytes) -> bool:
    """Return whether a file begins as a tar does."""
    header = head[:BLOCK]
    return header[MAGIC] == b"ustar" and len(header) == BLOCK and _is_header(header)


def tar_members(chunks: Iterable[bytes]) -> Iterator[Member]:
    """Yield the members of a tar, directories left out.

    Args:
        chunks: its bytes, unpacked.

    Raises:
        BrokenArchiveError: it ends too early, or is none from some place on.
        MoreThanArchiveError: more than zero bytes stands behind its end.
    """
    source = _Source(chunks)
    facts: dict[str, str] = {}
    while True:
        header = source.take(BLOCK)
        if not header.strip(b"\0"):
            if source.goes_on():
                raise MoreThanArchiveError("what stands behind the end of the archive is not read")
            return
        if not _is_header(header):
            raise BrokenArchiveError("broken: what should be the header of a member is none")
        size = _number(header[124:136])
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
        refused = "" if kind in (b"0", b"\0", b"7") else KINDS.get(kind, "no regular file")
        if any(key.startswith("GNU.sparse") for key in facts):
            refused = KINDS[b"S"]
        content = source.content(size)
        if kind != b"5":
            yield Member(facts.get("path") or _name(header), refused, content)
        for _ in content:
            pass
        source.skip(-size % BLOCK)
        facts = {}


def _is_header(header: bytes) -> bool:
    try:
        told = _number(header[148:156])
    except BrokenArchiveError:
        return False
    return told == sum(header) - sum(header[148:156]) + 8 * ord(" ")


def _name(header: bytes) -> str:
    name, prefix = header[:100].partition(b"\0")[0], b""
    if header[257:263] == b"ustar\0":
        prefix = header[345:500].partition(b"\0")[0]
    return _text(prefix + b"/" + name if prefix else name)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        # In base 256, for what eight digits do not hold; a sign makes no sense.
        number = int.from_bytes(field, "big") & ((1 << 8 * len(field) - 1) - 1)
        if field[0] & 0x40 or number >= 1 << 63:
            raise BrokenArchiveError("broken: the size of a member is none")
        return number
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError as error:
        raise BrokenArchiveError("broken: the size of a member is none") from error


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
        """Return so many bytes.

        Raises:
            BrokenArchiveError: there are fewer.
        """
        return b"".join(self.content(size))

    def skip(self, size: int) -> None:
        for _ in self.content(size):
            pass

    def goes_on(self) -> bool:
        """Return whether there is anything more than zero bytes."""
        return any(piece.strip(b"\0") for piece in chain([self._held], self._chunks))

    def content(self, size: int) -> Iterator[bytes]:
        """Yield so many bytes, in pieces.

        Raises:
            BrokenArchiveError: there are fewer.
        """
        while size:
            if not self._held:
                piece = next(self._chunks, None)
                if piece is None:
                    raise BrokenArchiveError("cut: it ends too early")
                self._held = piece
            part, self._held = self._held[:size], self._held[size:]
            size -= len(part)
            yield part
