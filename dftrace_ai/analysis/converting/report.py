"""What a conversion has written, as `dftrace convert --json` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Converted", "ConvertedFile", "Form", "report_adapter"]

Form = Literal["parquet", "perfetto", "dftracer"]
"""In which form."""


@dataclass(frozen=True)
class ConvertedFile:
    """A file that was written.

    Attributes:
        path: below the directory, or the file itself.
        rank: whose events it holds; null where that is not known, or they are of several.
        lines: events in it, with the lines of the format: names of tracks, headers, footers;
            0 where it holds something else.
        bytes: its size.
    """

    path: str
    rank: int | None
    lines: int
    bytes: int


@dataclass(frozen=True)
class Converted:
    """What was written.

    Attributes:
        format: version of this form, 1.
        to: in which form.
        out: the file or directory.
        lines: of all files.
        files: each of them.
        notes: what could not be read, or was changed, one line each.
    """

    format: Literal[1]
    to: Form
    out: str
    lines: int
    files: tuple[ConvertedFile, ...]
    notes: tuple[str, ...]


def report_adapter() -> TypeAdapter[Converted]:
    """Return what checks reports and makes their schema."""
    from pydantic import TypeAdapter

    return TypeAdapter(Converted)
