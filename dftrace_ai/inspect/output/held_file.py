"""A file that lines are added to, in a process where others close numbers that are not theirs."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from typing import TYPE_CHECKING

from dftrace_ai.spools.held_number import HeldNumber

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HeldFile"]

FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
# Lines are gathered up to the first; where they cannot be written up to the second.
GATHERED_BYTES = 64 * 1024
KEPT_BYTES = 1024 * 1024


class HeldFile:
    r"""A text file that is appended to, wherever it ends; it is made where it is not there.

    Python's own file objects write to a number. Where a program closes all the numbers there are,
    as daemons do, the next file that it opens gets that number, and the lines. Here the number is
    looked at before each use, and the file opened again by its name where it leads elsewhere.
    Any thread may write, and so may the handler of a signal while another call is under way.

    Args:
        path: the file; a link is not followed. The program may change its directory later.
        overwrite: begin anew; else append.
        mode: who may read and write the file where it is made, whatever the umask says.

    Raises:
        OSError: it cannot be opened, or is no regular file.

    Example::

        file = HeldFile(Path("log/main.log"), overwrite=True)
        file.write("a line\n")
        file.close()
    """

    def __init__(self, path: Path, *, overwrite: bool, mode: int = 0o600) -> None:
        self._held: HeldNumber | None = None
        self._mode = mode
        self.path = path.absolute()
        self.closed = False
        self._gathered: list[bytes] = []
        self._bytes = 0
        self._lock = threading.RLock()
        self._pid = os.getpid()
        number = self._opened(os.O_TRUNC if overwrite else 0)
        info = os.fstat(number)
        if not stat.S_ISREG(info.st_mode):
            os.close(number)
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self._held = HeldNumber(number)

    def write(self, text: str) -> None:
        """Add text.

        Raises:
            OSError: what was gathered cannot be written. It is kept for the next try as long as
                it is not too much; beyond that the new text is lost.
        """
        line = text.encode("utf-8", errors="backslashreplace")
        with self._own_lock():
            if self._bytes < KEPT_BYTES:
                self._gathered.append(line)
                self._bytes += len(line)
            if self._bytes >= GATHERED_BYTES:
                self.flush()

    def flush(self) -> None:
        """Bring the text into the file.

        Raises:
            OSError: it cannot be written, and is kept for the next try.
        """
        with self._own_lock():
            gathered, self._gathered, self._bytes = self._gathered, [], 0
            rest = b"".join(gathered)
            try:
                while rest:
                    rest = rest[os.write(self._own_number(), rest) :]
            finally:
                if rest:
                    self._gathered.insert(0, rest)
                    self._bytes += len(rest)

    def close(self) -> None:
        """Bring the text into the file and close it.

        Raises:
            OSError: as `flush`; the file is closed all the same.
        """
        if self.closed:
            return
        try:
            self.flush()
        finally:
            self.closed = True
            self._let_go()

    def __del__(self) -> None:
        """Close what nobody has closed."""
        self._let_go()

    def _own_lock(self) -> threading.RLock:
        if self._pid != os.getpid():
            # Forked: a thread that is not here may hold the lock, and these lines are the parent's.
            self._pid = os.getpid()
            self._lock = threading.RLock()
            self._gathered, self._bytes = [], 0
        return self._lock

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
        self._held = None

    def _opened(self, flags: int) -> int:
        while True:
            with contextlib.suppress(FileNotFoundError):
                # Not waiting for a reader, should it be a pipe.
                return os.open(self.path, FLAGS | os.O_NONBLOCK | flags)
            with contextlib.suppress(FileExistsError):  # another process was first
                return self._made()

    def _made(self) -> int:
        number = os.open(self.path, FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        if self._mode != 0o600:
            with contextlib.suppress(OSError):  # a file system that has no modes
                os.fchmod(number, self._mode)
        return number

    def _own_number(self) -> int:
        """Return the number, for the next call only."""
        held = self._held
        if held is not None and not held.leads_elsewhere():
            return held.now()
        try:
            number = os.open(self.path, FLAGS | os.O_NONBLOCK)
            if held is not None and not held.is_of(os.fstat(number)):
                os.close(number)
                raise OSError(errno.ESTALE, "another file lies there now", str(self.path))
        except FileNotFoundError:
            # Moved away or removed: the lines go on in a new one.
            number = self._made()
        self._held = HeldNumber(number)
        return self._held.now()
