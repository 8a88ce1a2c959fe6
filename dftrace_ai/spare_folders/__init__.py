"""Directories of temporary files that do not outlive their process for long, however it ends."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from dftrace_ai import system

__all__ = ["SpareFolder", "is_let_go", "locked"]

PREFIX = "dftrace-spare-"

# A file that its process keeps locked. What has none was made by somebody else.
IN_USE = ".in-use"
UNLOCKED = ".made"

# Where this process has looked for what dead ones have left.
_looked_at: set[str] = set()


class SpareFolder:
    """A directory that is gone with its block, or when nothing refers to it any more.

    That of a process that was killed goes when the next one makes a directory beside it.

    Attributes:
        path: where it is, as ``TMPDIR`` says.

    Raises:
        OSError: it cannot be made.

    Example::

        with SpareFolder() as folder:
            (folder / "copy").write_bytes(b"")
    """

    def __init__(self) -> None:
        place = tempfile.gettempdir()
        if place not in _looked_at:
            _looked_at.add(place)
            _remove_left(place)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._remove = weakref.finalize(self, _remove, self.path, _held(self.path), os.getpid())

    def __enter__(self) -> Path:
        """Return the path."""
        return self.path

    def __exit__(self, *raised: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the directory with all that it holds, if it is there."""
        self._remove()


def _held(folder: Path) -> int | None:
    """Lock a directory for as long as this process lives; None where there are no locks."""
    unlocked = folder / UNLOCKED
    with suppress(OSError):
        number = os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o600)
        if locked(number):
            # Nobody sees it without the lock.
            unlocked.rename(folder / IN_USE)
            return number
        os.close(number)
    return None


def _remove(folder: Path, held: int | None, owner: int) -> None:
    # A forked child that ends has the object, too.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def _remove_left(place: str) -> None:
    """Remove what processes of this user have left that were killed."""
    with suppress(OSError), os.scandir(place) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
        for path in left:
            if is_let_go(Path(path, IN_USE)) and _is_own_folder(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_own_folder(path: str) -> bool:
    with suppress(OSError):
        status = os.lstat(path)
        return stat.S_ISDIR(status.st_mode) and status.st_uid == system.user()
    return False


def locked(number: int) -> bool:
    """Lock an open file for as long as it is open; False where another process has.

    Args:
        number: its descriptor, which forked children have, too.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: then nobody knows whose it is, and it stays
        return False
    with suppress(OSError):
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def is_let_go(path: Path) -> bool:
    """Return whether a file or directory of this user is there that nobody keeps locked.

    Args:
        path: what a process had `locked`.
    """
    flags = system.TO_READ | system.O_NOFOLLOW
    with suppress(OSError):
        number = os.open(path, flags)
        try:
            return os.fstat(number).st_uid == system.user() and locked(number)
        finally:
            os.close(number)
    return False
