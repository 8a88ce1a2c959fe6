"""Opening a file that may be anything: a name can lead to a pipe, a device or nowhere."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["open_regular"]


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; never waits, and never touches a device.

    Args:
        path: the file; links are followed.

    Returns:
        The file, unbuffered.

    Raises:
        TraceError: it does not exist, is no regular file, or cannot be opened.

    Example::

        with open_regular(Path("out/trace-host-1.pfw")) as file:
            head = file.read(4096)
    """
    try:
        # Looked at first, since opening alone does something to some devices.
        if not stat.S_ISREG(path.stat().st_mode):
            raise TraceError(f"{path}: not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb", buffering=0)
        os.close(descriptor)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{path}: not a path: {error}") from error
    raise TraceError(f"{path}: not a regular file")
