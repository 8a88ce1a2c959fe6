"""Opening a file that may be anything, and once: a name can lead to a pipe, a device or nowhere."""

from __future__ import annotations

import io
import os
import resource
import stat
import weakref
from typing import TYPE_CHECKING, Final

from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KeptFile", "keep", "open_regular"]

# Files that stay open for the next reader; of what a process may have open, at most an eighth.
MOST_KEPT: Final = 128


def open_regular(path: Path) -> io.FileIO:
    """Open a regular file for reading, unbuffered; never waits, and never touches a device.

    Args:
        path: the file; links are followed.

    Raises:
        TraceError: it does not exist, is no regular file, or cannot be opened.
    """
    try:
        # Looked at first, since opening alone does something to some devices.
        if not stat.S_ISREG(path.stat().st_mode):
            raise TraceError(f"{path}: not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
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
        """Return the file for one reader, at its beginning.

        Raises:
            TraceError: as of `open_regular`, where the name leads elsewhere by now.
        """
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
    if KeptFile.count < min(MOST_KEPT, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8):
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
        text = os.pread(self.fileno(), wanted, self._at)
        self._at += len(text)
        return text

    def seek(self, place: int, whence: int = 0, /) -> int:
        before = {0: 0, 1: self._at, 2: os.fstat(self.fileno()).st_size}[whence]
        self._at = before + place
        return self._at
