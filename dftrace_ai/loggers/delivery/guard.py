"""Who stands beside the process of a tracker: keeps its output short, and ends it in the end.

A tracker that hangs, or whose C code keeps the interpreter's lock, cannot be relied upon to end
itself when its training is gone.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

from dftrace_ai.loggers.interfaces.file_paths import opened_file

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.loggers.delivery.shared_count import SharedCount

__all__ = ["ignore_termination", "own_signals", "stand_by"]

MOST_OUTPUT = 1 << 20
CUT = b"\n(what it has printed from here on is not kept)\n"
POLL_MS = 100
STOPS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def own_signals() -> None:
    """Undo what is inherited of a training: who ignores its children cannot wait for one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def ignore_termination() -> None:
    """Leave it to the training to end: who stops a whole job stops the training, too.

    Processes that the tracker starts can be stopped: they do not ignore it.
    """
    own = os.getpid()

    def on_stop(number: int, frame: object) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for each in STOPS:
        signal.signal(each, on_stop)


def stand_by(
    child: int, records: int, output: int, kept: Path, told: SharedCount, limit_s: float
) -> None:
    """Wait for the end of a tracker's process, and tell how it was.

    Args:
        child: the process, which leads a group.
        records: number of the pipe that it reads, whose other end only the training has.
        output: number of the pipe into which it prints.
        kept: file that gets what it prints, up to a mebibyte.
        told: told of the end.
        limit_s: seconds that it may go on when the training is gone.
    """
    polled = select.poll()
    polled.register(records, 0)
    polled.register(output, select.POLLIN)
    process = _process_number(child)
    if process is not None:
        polled.register(process, select.POLLIN)
    file = _file(kept)
    left = MOST_OUTPUT
    until_s: float | None = None
    status: int | None = None
    while status is None:
        for number, _ in polled.poll(_wait_ms(until_s, polls=process is None)):
            if number == records:
                # Its training is gone, or has ended the run.
                polled.unregister(records)
                until_s = time.monotonic() + max(1.0, limit_s)
            elif number == output:
                data = _read(output)
                if not data:
                    polled.unregister(output)
                left = _keep(file, data, left)
        if until_s is not None and time.monotonic() >= until_s:
            os.killpg(child, signal.SIGKILL)
            until_s = None
        status = _ended(child)
    _rest(file, output, left)
    told.end(status)
    _clear_away(child, max(1.0, limit_s))


def _clear_away(group: int, limit_s: float) -> None:
    """End what a tracker has started and left, which may write the last of it for a while."""
    until_s = time.monotonic() + limit_s
    try:
        while time.monotonic() < until_s:
            os.killpg(group, 0)
            time.sleep(POLL_MS / 1000)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _process_number(child: int) -> int | None:
    try:
        return os.pidfd_open(child)
    except (AttributeError, OSError):
        return None


def _file(path: Path) -> int | None:
    try:
        return opened_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        return None  # it prints into nothing


def _wait_ms(until_s: float | None, *, polls: bool) -> int | None:
    if polls:
        return POLL_MS
    return None if until_s is None else max(0, round((until_s - time.monotonic()) * 1000)) + 1


def _ended(child: int) -> int | None:
    found, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _read(output: int) -> bytes:
    try:
        return os.read(output, 1 << 16)
    except OSError:
        return b""


def _keep(file: int | None, data: bytes, left: int) -> int:
    """Append to the output's file, as long as there is room; returns the room that is left."""
    if file is None or left <= 0:
        return left
    kept = data if len(data) < left else data[:left] + CUT
    try:
        os.write(file, kept)
    except OSError:
        return 0  # a full disk; it was only what a tracker prints
    return left - len(data)


def _rest(file: int | None, output: int, left: int) -> None:
    """Keep what it has printed last; others that it has started may print for ever."""
    os.set_blocking(output, False)
    while left > 0 and (data := _read(output)):
        left = _keep(file, data, left)
