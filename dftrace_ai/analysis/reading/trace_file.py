"""A trace file as it lies on disk, and one that was passed over."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.trace_format.file_names import SUFFIX_OF

if TYPE_CHECKING:
    import io

    from dftrace_ai.analysis.reading.regular_file import KeptFile
    from dftrace_ai.errors import TraceError
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts

__all__ = [
    "EMPTY",
    "GZIP_MAGIC",
    "MAGIC_BYTES",
    "OPEN_FILES",
    "ZSTD_MAGIC",
    "Codec",
    "Copy",
    "HeldFile",
    "SkippedFile",
    "Tear",
    "TraceFile",
    "codec_of",
    "codec_of_name",
    "is_skippable",
    "tear_told",
]

OPEN_FILES: Final = Path("/proc/self/fd")
"""Where the system shows the files that this process has open."""

Codec = Literal["gzip", "zstd", "plain"]

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

# So many bytes tell how a file is compressed.
MAGIC_BYTES = len(ZSTD_MAGIC)


def codec_of(head: bytes) -> Codec:
    """Return how a file is compressed that begins with `head`."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    return "zstd" if head.startswith(ZSTD_MAGIC) or is_skippable(head) else "plain"


def codec_of_name(name: str) -> Codec:
    """Return how a file is compressed whose name the recorder has given."""
    codecs: dict[str, Codec] = {SUFFIX_OF["gzip"]: "gzip", SUFFIX_OF["zstd"]: "zstd"}
    return next((codec for suffix, codec in codecs.items() if name.endswith(suffix)), "plain")


def is_skippable(head: bytes) -> bool:
    """Return whether a frame of zstd begins so that readers pass over."""
    return head[1:MAGIC_BYTES] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50


EMPTY: Final = "the file is empty"


@dataclass(frozen=True)
class Tear:
    """Where a file stops being readable: byte, why, and whether what is there is broken.

    Else it ends too early.
    """

    offset: int
    reason: str
    damaged: bool = False

    def __str__(self) -> str:
        return self.reason if self.reason == EMPTY else f"{self.reason} at byte {self.offset}"


def tear_told(tear: object, done: str) -> str:
    """Return what people are told of a tear, and that what comes before it is `done`."""
    words = str(tear)
    return words if words == EMPTY else f"torn: {words}; what comes before it is {done}"


@dataclass(frozen=True)
class Copy:
    """What is read in place of a trace that is in an archive, or written in another way.

    `folder` removes it when nothing refers to it; `profile` is one of torch.profiler and the like;
    `notes` tell what was put right in it, a line each.
    """

    path: Path
    folder: object
    profile: bool = False
    header: HeaderFacts | None = None
    tear: Tear | None = None
    notes: tuple[str, ...] = ()


class HeldFile:
    """A file that can be read at `path` for as long as this is there, whoever removes its name.

    Raises:
        OSError: it cannot be opened, as where it is a link.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW
        descriptor = os.open(path, flags)
        self.path = OPEN_FILES / str(descriptor)
        weakref.finalize(self, os.close, descriptor)


@dataclass(frozen=True)
class TraceFile:
    """A file on disk that holds a trace, or the beginning of one.

    Attributes:
        path: where it lies; in an archive, as if the archive were a directory, as is a file that
            holds several traces one behind the other.
        codec: how it is compressed, told from its first bytes and not its name.
        framed: its first line is ``[``.
        named: its first event is ``process_name``, as the recorder of this package has it.
        asked_for: its path was given, and not that of a directory which holds it.
        copy: what is read in its place; None where it is read itself.
        held: keeps it readable where its recorder may delete it meanwhile.
        header: what its beginning says of its process; None where that has to be looked for.
        kept: has it open for its readers; None where each opens it.
    """

    path: Path
    codec: Codec
    framed: bool
    named: bool
    asked_for: bool = False
    copy: Copy | None = None
    held: HeldFile | None = None
    header: HeaderFacts | None = field(default=None, compare=False, repr=False)
    kept: KeptFile | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def content(self) -> Path:
        """Where the bytes are that are read."""
        if self.copy:
            return self.copy.path
        return self.held.path if self.held else self.path

    def opened(self) -> io.FileIO:
        """Return what is read, open and at its beginning.

        Raises:
            TraceError: it is not there any more, is no regular file, or cannot be opened.
        """
        return self.kept.reopened() if self.kept else open_regular(self.content)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was put right when it was copied, one line each."""
        return tuple(f"{self}: {note}" for note in self.copy.notes) if self.copy else ()


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
