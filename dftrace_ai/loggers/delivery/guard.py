"""Who stands beside the process of a tracker: keeps its output short, and ends it in the end.

A tracker that hangs, or whose C code keeps the interpreter's lock, cannot be relied upon to end
itself when its training is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.interfaces.file_paths import opened_file
from dftrace_ai.masking import masked_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dftrace_ai.loggers.delivery.shared_count import SharedCount

__all__ = ["ignore_termination", "own_signals", "stand_by", "take_orphans"]

MOST_OUTPUT = 1 << 20
CUT = b"\n(what it has printed from here on is not kept)\n"
LINE_BYTES = 1 << 16
POLL_MS = 100
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
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
    printed = _Printed(kept)
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
                printed.take(data)
        if until_s is not None and time.monotonic() >= until_s:
            os.killpg(child, signal.SIGKILL)
            until_s = None
        status = _ended(child)
    # Others that it has started may print for ever.
    os.set_blocking(output, False)
    while not printed.is_full and (data := _read(output)):
        printed.take(data)
    printed.end()
    told.end(status)
    _clear_away(max(1.0, limit_s))


def take_orphans() -> None:
    """Become the parent of what a tracker leaves behind, in whatever session it is."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _clear_away(limit_s: float) -> None:
    """End what a tracker has started and left, which may write the last of it for a while."""
    import psutil

    until_s = time.monotonic() + limit_s
    while (left := _own_processes(psutil)) and time.monotonic() < until_s + limit_s:
        if time.monotonic() >= until_s:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        time.sleep(POLL_MS / 1000)


def _own_processes(psutil: Any) -> list[Any]:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process().children(recursive=True))
    return []


def _process_number(child: int) -> int | None:
    try:
        return os.pidfd_open(child)
    except (AttributeError, OSError):
        return None


def _wait_ms(until_s: float | None, *, polls: bool) -> int | None:
    if polls:
        return POLL_MS
    return None if until_s is None else max(0, round((until_s - time.monotonic()) * 1000)) + 1


def _ended(child: int) -> int | None:
    """Return how a process has ended, if it has; others that have ended are let go."""
    while True:
        found, status = os.waitpid(-1, os.WNOHANG)
        if found == child:
            return os.waitstatus_to_exitcode(status)
        if not found:
            return None


def _read(output: int) -> bytes:
    try:
        return os.read(output, 1 << 16)
    except OSError:
        return b""


class _Printed:
    """The file of what a tracker prints: lines without the secrets in them, up to a mebibyte.

    Args:
        path: of the file, which is its owner's alone.

    Attributes:
        is_full: whether nothing more is kept.
    """

    def __init__(self, path: Path) -> None:
        self.is_full = False
        self._left = MOST_OUTPUT
        self._begun = b""
        try:
            self._file = opened_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:
            self.is_full = True  # it prints into nothing

    def take(self, data: bytes) -> None:
        """Keep what has been printed; of a line once it has its end."""
        lines = (self._begun + data).splitlines(keepends=True)
        self._begun = b""
        if lines and not lines[-1].endswith(b"\n") and len(lines[-1]) < LINE_BYTES:
            self._begun = lines.pop()
        self._keep(lines)

    def end(self) -> None:
        """Keep what is left of the last line."""
        self._keep([self._begun])

    def _keep(self, lines: Iterable[bytes]) -> None:
        if self.is_full:
            return
        texts = (line.decode("utf-8", "surrogateescape") for line in lines)
        data = "".join(map(masked_text, texts)).encode("utf-8", "surrogateescape")
        try:
            os.write(self._file, data if len(data) < self._left else data[: self._left] + CUT)
        except OSError:
            self.is_full = True  # a full disk; it was only what a tracker prints
        self._left -= len(data)
        self.is_full = self.is_full or self._left <= 0
