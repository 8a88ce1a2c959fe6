"""A trace file as it lies on disk, and one that was passed over."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.errors import TraceError

__all__ = ["GZIP_MAGIC", "ZSTD_MAGIC", "Codec", "SkippedFile", "TraceFile"]

Codec = Literal["gzip", "zstd", "plain"]

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class TraceFile:
    """A file on disk that holds a trace, or the beginning of one.

    Attributes:
        path: where it lies.
        codec: how it is compressed, told from its first bytes and not its name.
        framed: its first line is ``[``.
        named: its first event is ``process_name``, as the recorder of this package has it.
        asked_for: its path was given, and not that of a directory which holds it.
    """

    path: Path
    codec: Codec
    framed: bool
    named: bool
    asked_for: bool = False

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class SkippedFile:
    """A file of a directory that has the name of a trace and cannot be read as one."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @classmethod
    def because_of(cls, error: TraceError, path: str | os.PathLike[str]) -> SkippedFile:
        """Return the file at `path`, of which `error` tells."""
        name = os.fspath(path)
        return cls(name, str(error).removeprefix(f"{name}: "))
