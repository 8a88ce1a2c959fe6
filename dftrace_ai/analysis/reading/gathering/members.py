"""What archives of every kind give: their members, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BrokenArchiveError", "BrokenMemberError", "Member", "MoreThanArchiveError"]


class BrokenArchiveError(Exception):
    """The archive cannot be read beyond a place."""


class MoreThanArchiveError(BrokenArchiveError):
    """All members were read, and the file holds more than that archive."""


class BrokenMemberError(Exception):
    """A member cannot be read; those behind it can."""


class Member(NamedTuple):
    """A member of an archive.

    Attributes:
        name: as the archive has it, whatever that is.
        refused: why it cannot be taken, for people; empty where it can.
        chunks: its bytes, to be taken before the next member is asked for. They may raise
            `BrokenMemberError`.
    """

    name: str
    refused: str
    chunks: Iterator[bytes]
