"""The number of an open file, in a process where others close numbers that are not theirs."""

from __future__ import annotations

import errno
import fcntl
import os
import resource

__all__ = ["HeldNumber"]

# The kernel keeps, and copies at each fork, a table up to the highest number in use.
HIGH_ENOUGH = 4096


class HeldNumber:
    """The number of a file that is looked at before each use.

    A program that closes all the numbers there are, as daemons do, or one twice, closes ours. The
    next file that it opens gets the number, and what was meant for ours.

    Args:
        number: of a file that was opened just now; it is moved out of the way, and closed with
            this object.

    Raises:
        OSError: it is closed already.

    Example::

        held = HeldNumber(os.open("out", os.O_RDONLY))
        os.fsync(held.now())
        held.close()
    """

    def __init__(self, number: int) -> None:
        self._number = -1
        info = os.fstat(number)
        self._file = (info.st_dev, info.st_ino)
        self._number = number
        self._move_out_of_the_way()

    def now(self) -> int:
        """Return the number, for the next call only.

        Raises:
            OSError: somebody else has closed it.
        """
        if self._leads_here(self._number):
            return self._number
        raise OSError(errno.EBADF, "closed by the program")

    def leads_elsewhere(self) -> bool:
        """Return whether somebody else has closed it."""
        return not self._leads_here(self._number)

    def is_of(self, info: os.stat_result) -> bool:
        """Return whether this is the file that was opened, whatever became of its number."""
        return (info.st_dev, info.st_ino) == self._file

    def is_same(self, other: HeldNumber) -> bool:
        """Return whether another number was opened to the same file."""
        return self._file == other._file

    def close(self) -> None:
        """Close it, unless it is somebody else's by now."""
        number, self._number = self._number, -1
        if self._leads_here(number):
            os.close(number)

    def _leads_here(self, number: int) -> bool:
        try:
            return number >= 0 and self.is_of(os.fstat(number))
        except OSError:
            return False

    def _move_out_of_the_way(self) -> None:
        # To one that the program is not given as long as lower ones are free.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = HIGH_ENOUGH if limit == resource.RLIM_INFINITY else min(limit, HIGH_ENOUGH)
        try:
            moved = fcntl.fcntl(self._number, fcntl.F_DUPFD_CLOEXEC, limit // 4 * 3)
        except OSError:
            return  # no number that high is to be had
        if not self._leads_here(moved):
            # Closed, and given away, this very moment: what was moved is somebody else's.
            os.close(moved)
            raise OSError(errno.EBADF, "closed by the program")
        self.close()
        self._number = moved
