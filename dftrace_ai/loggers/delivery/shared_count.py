"""What the process of a tracker tells its training: in memory that both have."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SharedCount"]

SIZE = 4096
COUNT, STATUS = struct.Struct("<q"), struct.Struct("<i")
TAKEN_AT, SEEN_AT, ENDED_AT, OVER_AT, STATUS_AT, PROCESS_AT, FAULT_AT = 0, 8, 16, 17, 20, 24, 32
# What `mmap` returns where it fails: (void *) -1.
FAILED = ctypes.c_void_p(-1).value
# Where a program has closed its standard streams, new files get their numbers.
LOWEST = 3


class SharedCount:
    """Counts, an end and a fault, written by one process and read by another.

    Args:
        number: of the file, as the other process has handed it on.

    Attributes:
        number: of the file, to be handed on.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._memory = _mapped(number)

    @classmethod
    def made(cls, folder: Path) -> SharedCount:
        """Make one, which is gone when nobody has it any more.

        Args:
            folder: where its file lies, nameless, should the system give no memory without one.

        Raises:
            OSError: there is neither.
        """
        number = _file(folder)
        try:
            moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, LOWEST)
        finally:
            os.close(number)
        try:
            return cls(moved)
        except BaseException:
            os.close(moved)
            raise

    def close_number(self) -> None:
        """Close the file; the memory stays."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    @property
    def taken(self) -> int:
        """How many records have been taken whole."""
        return int(COUNT.unpack_from(self._memory, TAKEN_AT)[0])

    @taken.setter
    def taken(self, count: int) -> None:
        COUNT.pack_into(self._memory, TAKEN_AT, count)

    @property
    def seen(self) -> int:
        """How many records have come, and were taken or refused."""
        return int(COUNT.unpack_from(self._memory, SEEN_AT)[0])

    @seen.setter
    def seen(self, count: int) -> None:
        COUNT.pack_into(self._memory, SEEN_AT, count)

    @property
    def ended(self) -> bool:
        """Whether the tracker has ended its run in order."""
        return self._memory[ENDED_AT] == 1

    @ended.setter
    def ended(self, ended: bool) -> None:
        self._memory[ENDED_AT] = int(ended)

    @property
    def process(self) -> int:
        """Number of the process, which leads a group; 0 as long as there is none."""
        return int(COUNT.unpack_from(self._memory, PROCESS_AT)[0])

    @process.setter
    def process(self, number: int) -> None:
        COUNT.pack_into(self._memory, PROCESS_AT, number)

    @property
    def is_over(self) -> bool:
        """Whether the process is gone."""
        return self._memory[OVER_AT] == 1

    @property
    def exit_status(self) -> int:
        """How it went, where it is gone: its exit status, or less than 0 for a signal."""
        return int(STATUS.unpack_from(self._memory, STATUS_AT)[0])

    def end(self, exit_status: int) -> None:
        """Tell that the process is gone."""
        STATUS.pack_into(self._memory, STATUS_AT, exit_status)
        self._memory[OVER_AT] = 1

    @property
    def fault(self) -> str:
        """What went wrong first, or ""."""
        length = int(STATUS.unpack_from(self._memory, FAULT_AT)[0])
        return bytes(self._memory[FAULT_AT + 4 : FAULT_AT + 4 + length]).decode("utf-8", "replace")

    def note(self, fault: str) -> None:
        """Tell what went wrong; the first is kept."""
        if STATUS.unpack_from(self._memory, FAULT_AT)[0]:
            return
        data = fault.encode("utf-8", "replace")[: SIZE - FAULT_AT - 4]
        self._memory[FAULT_AT + 4 : FAULT_AT + 4 + len(data)] = data
        STATUS.pack_into(self._memory, FAULT_AT, len(data))


def _mapped(number: int) -> memoryview:
    """Return the memory of a file, which stays as long as the process.

    That of the module `mmap` keeps a number open besides, and closes it in the end, whosever it is
    by then.

    Raises:
        OSError: it cannot be mapped.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        ctypes.c_long,
    )
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = library.mmap(None, SIZE, access, mmap.MAP_SHARED, number, 0)
    if address in (None, FAILED):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return memoryview((ctypes.c_char * SIZE).from_address(address)).cast("B")


def _file(folder: Path) -> int:
    try:
        number = os.memfd_create("dftrace-tracker", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        number, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)  # noqa: PTH108
    try:
        # Written, so that a full disk is met here, and not where the memory is used.
        os.write(number, bytes(SIZE))
    except BaseException:
        os.close(number)
        raise
    return number
