"""What systems call otherwise, or lack, of what is asked of them to read traces."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Where one of them is not known, files are opened without what it would ask for.
O_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
O_CLOEXEC: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | O_BINARY
O_NOFOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
O_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
O_NOCTTY: Final[int] = getattr(os, "O_NOCTTY", 0)
O_DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
O_PATH: Final[int] = getattr(os, "O_PATH", 0)

TO_READ: Final = os.O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY
"""Nothing is waited for, should it be a pipe, and no other program gets it."""

HAS_USERS: Final = hasattr(os, "geteuid")
"""Whether files have owners by number, whom this process may be compared with."""

HOLDS_FOLDERS: Final = hasattr(os, "O_DIRECTORY")
"""Whether a folder can be opened, and what is open renamed."""


def user() -> int:
    """Return the number of the user for whom this process works; 0 where users have none."""
    return os.geteuid() if HAS_USERS else 0


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_at(number: int, most: int, place: int, /) -> bytes:
    os.lseek(number, place, os.SEEK_SET)
    return os.read(number, most)


read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_at)
"""Returns bytes of an open file from a place on: ``read_at(number, most, place)``. Where the file
stands is for nobody to build on."""


def open_files() -> int:
    """Return how many files this process may hold open at most."""
    try:
        import resource
    except ModuleNotFoundError:
        return 512  # of Windows' C library
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most
