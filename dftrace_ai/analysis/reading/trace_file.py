"""A trace file as it lies on disk, how it is opened, and one that was passed over."""

from __future__ import annotations

import io
import os
import stat
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai import system
from dftrace_ai.analysis.reading.remote import RemotePath, opened_remote
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import SUFFIX_OF

if TYPE_CHECKING:
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts

OPEN_FILES: Final = Path("/proc/self/fd")
"""Where the system shows the files that this process has open."""

Codec = Literal["gzip", "zstd", "plain"]
"""How a file is compressed."""

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

MADE_OF_OTHERS: Final = "made of other traces for a viewer, by dftrace merge"


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


TORN: Final = ": torn"
"""What stands behind the name of a file that is torn, in what is told of it."""


def tear_told(tear: object, done: str) -> str:
    """Return what people are told of a tear, and that what comes before it is `done`."""
    words = str(tear)
    return words if words == EMPTY else f"torn: {words}; what comes before it is {done}"


@dataclass(frozen=True)
class Copy:
    """What is read in place of a trace that is in an archive, or written in another way.

    `folder` removes it when nothing refers to it; `profile` is one of torch.profiler and the like,
    `original` codec and bytes of its file; `notes` tell what was put right in it, a line each.
    """

    path: Path
    folder: object
    profile: bool = False
    header: HeaderFacts | None = None
    tear: Tear | None = None
    notes: tuple[str, ...] = ()
    original: tuple[Codec, int] | None = None


class HeldFile:
    """A file that can be read at `path` for as long as this is there, whoever removes its name.

    Raises:
        OSError: it cannot be opened, as where it is a link.
    """

    def __init__(self, path: Path) -> None:
        flags = system.TO_READ | system.O_NOFOLLOW
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
        merged: it was made of other traces for a viewer.
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
    merged: bool = False

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
        return self.kept.reopened() if self.kept else opened(self.content)

    @property
    def is_remote(self) -> bool:
        """Whether it lies in a store, beside which nothing is written."""
        return isinstance(self.path, RemotePath)

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


# Files that stay open for the next reader; of what a process may have open, at most an eighth.
MOST_KEPT: Final = 128


def opened(path: Path) -> io.FileIO:
    """Open a file for reading, on this machine or in a store; as `open_regular`."""
    return opened_remote(path) if isinstance(path, RemotePath) else open_regular(path)


def open_regular(path: Path) -> io.FileIO:
    """Open a regular file for reading, unbuffered; never waits, and never touches a device."""
    try:
        # Looked at first, since opening alone does something to some devices.
        if not stat.S_ISREG(path.stat().st_mode):
            raise TraceError(f"{path}: not a regular file")
        descriptor = os.open(path, system.TO_READ)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return io.FileIO(descriptor)
        os.close(descriptor)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{path}: not a path: {error}") from error
    raise TraceError(f"{path}: not a regular file")


class KeptFile:
    """A file that stays open for as long as this is there, so that it is opened once."""

    count = 0

    def __init__(self, path: Path, opened: io.FileIO) -> None:
        self._path = path
        self._opened = opened
        KeptFile.count += 1
        weakref.finalize(self, _let_go, opened)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        # A copy, and one in another process, opens the file by its name.
        return type(None), ()

    def reopened(self) -> io.FileIO:
        """Return the file for one reader, at its beginning; it raises as `open_regular` does."""
        try:
            is_same = os.path.samestat(self._path.stat(), os.fstat(self._opened.fileno()))
        except OSError:
            is_same = False
        return _Shared(self) if is_same else open_regular(self._path)

    def fileno(self) -> int:
        """Return the descriptor, which is not to be closed."""
        return self._opened.fileno()


def _let_go(opened: io.FileIO) -> None:
    KeptFile.count -= 1
    opened.close()


def keep(path: Path, opened: io.FileIO) -> KeptFile | None:
    """Return what keeps a file open, which is closed and None where there are enough of them."""
    if KeptFile.count < min(MOST_KEPT, system.open_files() // 8):
        return KeptFile(path, opened)
    opened.close()
    return None


class _Shared(io.FileIO):
    """A reader with a place of its own in a file that others read, too."""

    def __init__(self, kept: KeptFile) -> None:
        super().__init__(kept.fileno(), closefd=False)
        self._kept = kept
        self._at = 0

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = size if size is not None and size >= 0 else os.fstat(self.fileno()).st_size
        text = system.read_at(self.fileno(), wanted, self._at)
        self._at += len(text)
        return text

    def seek(self, place: int, whence: int = 0, /) -> int:
        before = {0: 0, 1: self._at, 2: os.fstat(self.fileno()).st_size}[whence]
        self._at = before + place
        return self._at
