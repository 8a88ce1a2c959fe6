"""Which process writes a log, told so that another one can find out whether it still lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

MOST_PID = 1 << 22
"""Linux gives no higher number (proc(5), pid_max)."""

GONE = (b"Z", b"X", b"x")
"""States of a process that has ended and whose parent has not asked for its status yet."""


class ProcessIdentity(NamedTuple):
    """A process, as the first line of its log names it; "" and 0 where something is not told."""

    host: str
    boot: str  # of the machine; no other one has it
    pid_namespace: int  # the set of processes in which `pid` is meant
    pid: int
    start: int  # in ticks since the boot


def here() -> ProcessIdentity:
    """Return the identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(socket.gethostname(), _boot(), _pid_namespace(), pid, process_start(pid))


def process_start(pid: int) -> int:
    """Return when a process began, in ticks since the machine did; 0 where that is not told.

    It tells the process from a later one of the same number (proc_pid_stat(5), field 22).
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def is_alive(process: ProcessIdentity, written_s: float) -> bool | None:
    """Tell whether a process lives, whose log changed last then; None where that is not known."""
    if process.host != socket.gethostname():
        return None
    if process.boot != _boot():
        # The same machine, and it has been started anew since; or another one of the same name,
        # which has written since this one was started.
        return False if process.boot and written_s < _booted_s() else None
    if process.pid_namespace != _pid_namespace() or not 0 < process.pid <= MOST_PID:
        return None
    return _has_process(process.pid, process.start)


def _has_process(pid: int, start: int) -> bool | None:
    fields = _stat(pid)
    if fields:
        return fields[0] not in GONE and (int(fields[19]) == start or not start)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return None  # one is there, of somebody whose processes may not be looked at
    # It has gone between the two, or there is no such file system here.
    return None if _stat(os.getpid()) == [] else bool(_stat(pid))


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third one on; none where it cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
    return fields if len(fields) > 19 and fields[19].isdigit() else []


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _booted_s() -> float:
    """Return when the machine was started, in seconds since 1970; 0 where that is not told."""
    try:
        for line in Path("/proc/stat").read_bytes().splitlines():
            if line.startswith(b"btime "):
                return float(line.split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return 0.0


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
