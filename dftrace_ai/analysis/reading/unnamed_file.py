"""A file in `TMPDIR` without a name, written from its beginning to its end, and read anywhere."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai import system
from dftrace_ai.errors import DftraceError
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from typing_extensions import Buffer


class UnnamedFile:
    """A file that is gone when nothing refers to this any more, or with its process.

    OSError: it cannot be made. Its name begins with `prefix`, as long as it has one.
    """

    def __init__(self, prefix: str) -> None:
        self.number, name = tempfile.mkstemp(prefix=prefix)
        weakref.finalize(self, os.close, self.number)
        Path(name).unlink()
        self._size = 0

    def add(self, content: Buffer) -> int:
        """Write bytes behind all others; returns where they begin.

        OSError: there is no room for them. What was there before is.
        """
        left, place = memoryview(content).cast("B"), self._size
        behind = place
        while left:
            written = os.pwrite(self.number, left, behind)
            left, behind = left[written:], behind + written
        self._size = behind
        return place

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes; DftraceError: the disk does not give them."""
        return read_at(self.number, place, size)


def read_at(number: int, place: int, size: int) -> bytes:
    """Return some bytes of such a file, by its descriptor; DftraceError as `UnnamedFile.read`."""
    content = b""
    try:
        # A call gives 2 GiB at the most.
        while more := system.read_at(number, size - len(content), place + len(content)):
            content += more
    except OSError as error:
        folder = quoted(tempfile.gettempdir())
        raise DftraceError(f"{folder}: cannot be read: {error.strerror}") from error
    return content
