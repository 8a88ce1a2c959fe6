"""What the process of a tracker tells its training: in memory that both have."""

from __future__ import annotations

import mmap
import os
import struct

__all__ = ["SharedCount"]

SIZE = 4096
TAKEN_AT, ENDED_AT, FAULT_AT = 0, 8, 16


class SharedCount:
    """A count, an end and a fault, written by one process and read by another.

    Args:
        number: of the file; None makes one, which is gone when nobody has it any more.

    Attributes:
        number: of the file, to be handed on.
    """

    def __init__(self, number: int | None = None) -> None:
        if number is None:
            number = os.memfd_create("dftrace-tracker", os.MFD_CLOEXEC)
            os.ftruncate(number, SIZE)
        self.number = number
        self._memory = mmap.mmap(number, SIZE)

    def close_number(self) -> None:
        """Close the file; the memory stays."""
        os.close(self.number)
        self.number = -1

    @property
    def taken(self) -> int:
        """How many records have been taken whole."""
        return int(struct.unpack_from("<q", self._memory, TAKEN_AT)[0])

    @taken.setter
    def taken(self, count: int) -> None:
        struct.pack_into("<q", self._memory, TAKEN_AT, count)

    @property
    def ended(self) -> bool:
        """Whether the tracker has ended its run in order."""
        return self._memory[ENDED_AT] == 1

    @ended.setter
    def ended(self, ended: bool) -> None:
        self._memory[ENDED_AT] = int(ended)

    @property
    def fault(self) -> str:
        """What went wrong first, or ""."""
        length = int(struct.unpack_from("<i", self._memory, FAULT_AT)[0])
        return self._memory[FAULT_AT + 4 : FAULT_AT + 4 + length].decode("utf-8", "replace")

    def note(self, fault: str) -> None:
        """Tell what went wrong; the first is kept."""
        if struct.unpack_from("<i", self._memory, FAULT_AT)[0]:
            return
        data = fault.encode("utf-8", "replace")[: SIZE - FAULT_AT - 4]
        self._memory[FAULT_AT + 4 : FAULT_AT + 4 + len(data)] = data
        struct.pack_into("<i", self._memory, FAULT_AT, len(data))
