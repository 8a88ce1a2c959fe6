"""What the process of a tracker tells its training: in memory that both have."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import tempfile
import time
from pathlib import Path

SIZE, FAULT_BYTES = 4096, 4000
# What `mmap` returns where it fails: (void *) -1.
FAILED = ctypes.c_void_p(-1).value
# Where a program has closed its standard streams, new files get their numbers.
LOWEST = 3


class SharedCount(ctypes.Structure):
    """Counts, an end and a fault, written by one process and read by another by a file's number."""

    _fields_ = (
        *(("taken", ctypes.c_int64), ("seen", ctypes.c_int64), ("process", ctypes.c_int64)),
        *(("exit_status", ctypes.c_int32), ("_fault_length", ctypes.c_int32)),
        *(("ended", ctypes.c_bool), ("is_over", ctypes.c_bool), ("is_open", ctypes.c_bool)),
        ("is_kept", ctypes.c_bool),
        ("_fault", ctypes.c_ubyte * FAULT_BYTES),
    )

    number: int
    # Records that have been taken whole, and those that were taken or refused.
    taken: int
    seen: int
    # The process that leads the tracker's group, 0 as long as there is none.
    process: int
    # Less than 0 for a signal, where the process is gone.
    exit_status: int
    # The tracker has ended its run in order; the process is gone; the run is open.
    ended: bool
    is_over: bool
    is_open: bool
    # Its file stays, and is held open as long as the tracker's process goes on.
    is_kept: bool
    _fault_length: int
    _fault: ctypes.Array[ctypes.c_ubyte]

    @classmethod
    def of(cls, number: int) -> SharedCount:
        """Return that of a file, as the other process has handed it on."""
        shared = cls.from_address(_mapped(number))
        shared.number = number
        return shared

    @classmethod
    def made(cls, folder: Path) -> SharedCount:
        """Make one, which is gone when nobody has it any more."""
        # Its file lies nameless in the folder where the system gives no memory without one.
        number = _file(folder)
        try:
            moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, LOWEST)
        finally:
            os.close(number)
        try:
            return cls.of(moved)
        except BaseException:
            os.close(moved)
            raise

    @classmethod
    def kept(cls, number: int) -> SharedCount:
        """Return that of a file on disk, in which what was seen before is counted on."""
        if os.fstat(number).st_size < SIZE:
            os.pwrite(number, bytes(SIZE), 0)
        shared = cls.of(number)
        shared.taken, shared.process, shared._fault_length = shared.seen, 0, 0
        shared.ended = shared.is_over = shared.is_open = False
        shared.is_kept = True
        return shared

    def close_number(self) -> None:
        """Close the file; the memory stays."""
        if not self.is_kept:
            self.let_go()

    def let_go(self) -> None:
        """Close the file, also one that is kept; nobody counts there any more."""
        number, self.number = self.number, -1
        if self.is_kept and number >= 0:
            # The memory would hold the lock as long as this process goes on.
            fcntl.flock(number, fcntl.LOCK_UN)
        if number >= 0:
            os.close(number)

    def end(self, exit_status: int) -> None:
        """Tell that the process is gone."""
        self.exit_status = exit_status
        self.is_over = True

    @property
    def fault(self) -> str:
        """What went wrong first, or ""."""
        return bytes(self._fault[: self._fault_length]).decode("utf-8", "replace")

    def note(self, fault: str) -> None:
        """Tell what went wrong; the first is kept."""
        if not self._fault_length:
            data = fault.encode("utf-8", "replace")[:FAULT_BYTES]
            self._fault[: len(data)] = list(data)
            self._fault_length = len(data)


class Progress:
    """Tells whether the process of a tracker gets on."""

    # Until its run is open it does where it has this share of a processor: importing takes long
    # where others keep them busy.
    LEAST_SHARE = 0.02
    LOOK_S = 0.1

    def __init__(self, told: SharedCount) -> None:
        self._told = told
        self._seen: tuple[int, bool, bool] | None = None
        self._looked_s, self._busy_s = time.monotonic(), 0.0

    def moved(self) -> bool:
        """Return whether it has got on since this was asked."""
        told = self._told
        seen, before = (told.seen, told.is_open, told.ended), self._seen
        self._seen = seen
        return seen != before or (not told.is_open and self._is_busy())

    def _is_busy(self) -> bool:
        now_s = time.monotonic()
        since_s = now_s - self._looked_s
        if since_s < self.LOOK_S:
            return False
        busy_s, before_s = _processor_s(self._told.process), self._busy_s
        self._looked_s, self._busy_s = now_s, busy_s
        return busy_s - before_s >= self.LEAST_SHARE * since_s


def _processor_s(process: int) -> float:
    """Return the processor time of a process and what it has waited for; 0 where none is told."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    ticks = sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _mapped(number: int) -> int:
    """Return where the memory of a file is, which stays as long as the process."""
    # That of the module `mmap` keeps a number open besides, and closes it in the end, whosever it
    # is by then.
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
    return int(address)


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
