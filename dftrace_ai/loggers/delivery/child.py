"""The process of a tracker: opens it, reads records from its standard input, ends with that."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pickle
import resource
import select
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.delivery.guard import (
    ignore_termination,
    own_signals,
    stand_by,
    take_orphans,
)
from dftrace_ai.loggers.delivery.own_process import END, LENGTH
from dftrace_ai.loggers.delivery.shared_count import SharedCount
from dftrace_ai.wording import described

if TYPE_CHECKING:
    from typing import NoReturn

    from dftrace_ai.loggers.interfaces.base import BaseLogint

__all__ = ["serve"]

FAILED = 1
CHUNK = 1 << 16
# So many records are taken at most before they are written, by trackers that write many at once.
MOST_UNWRITTEN = 500
# Where trackers seldom look that close all the numbers there are.
OUT_OF_THE_WAY = 1 << 16


def serve(told_by: int, output: str, limit_s: float) -> NoReturn:
    """Serve one training, then exit; whatever the tracker leaves behind ends with the process.

    Args:
        told_by: number of the file of `SharedCount`.
        output: path of the file that keeps what the tracker prints.
        limit_s: seconds that it may go on when the training is gone.
    """
    told = SharedCount(told_by)
    told.close_number()
    own_signals()
    ignore_termination()
    take_orphans()
    printed, printing = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        told.note(f"its process could not be started: {described(error)}")
        told.end(FAILED)
        os._exit(FAILED)
    if child:
        os.close(printing)
        # Here, too: whoever comes second finds it done.
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        told.process = child
        with contextlib.suppress(OSError):
            stand_by(child, 0, printed, Path(output), told, limit_s)
        os._exit(0)
    os.setpgid(0, 0)
    os.close(printed)
    for number in (1, 2):
        os.dup2(printing, number)
    os.close(printing)
    ignore_termination()
    code = FAILED
    try:
        code = _served(_Records(), told)
    except BaseException as error:  # noqa: BLE001 - the reason has to be told before the end
        told.note(described(error))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


class _Records:
    """The messages that come from the training."""

    def __init__(self) -> None:
        # The tracker may read its standard input; records are not for it.
        self._number = _moved(0)
        self._file = _identity(self._number)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._buffer = bytearray()

    def next(self) -> bytes | str | None:
        """Return a message; a status at the orderly end, None where the training is gone."""
        head = self._read(LENGTH.size)
        if head is None:
            return None
        (length,) = LENGTH.unpack(head)
        if length != END:
            return self._read(length)
        while self._fill():
            pass
        return self._buffer.decode()

    def wait_there(self) -> bool:
        """Return whether more is there already; does not wait for it."""
        if self._buffer:
            return True
        polled = select.poll()
        polled.register(self._now(), select.POLLIN)
        return bool(polled.poll(0))

    def _read(self, length: int) -> bytes | None:
        while len(self._buffer) < length:
            if not self._fill():
                return None
        data = bytes(memoryview(self._buffer)[:length])
        del self._buffer[:length]
        return data

    def _now(self) -> int:
        if _identity(self._number) != self._file:
            raise OSError("it has closed the pipe that its records come by")
        return self._number

    def _fill(self) -> bool:
        data = os.read(self._now(), CHUNK)
        self._buffer += data
        return bool(data)


def _identity(number: int) -> tuple[int, int] | None:
    try:
        info = os.fstat(number)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _moved(number: int) -> int:
    """Return another number of a file, as high as there are any."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, soft):
        place = OUT_OF_THE_WAY if limit == resource.RLIM_INFINITY else min(limit, OUT_OF_THE_WAY)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, place), hard))
            moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, place - 16)
        except (OSError, ValueError):
            continue
        finally:
            # The tracker, and what it starts, have the limit that the training has.
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return moved
    return os.dup(number)


def _served(records: _Records, told: SharedCount) -> int:
    message = records.next()
    if not isinstance(message, bytes):
        return FAILED
    try:
        # From the training that started this process, and nobody else.
        module, name, run = pickle.loads(message)  # noqa: S301
        kind: Any = import_module(module)
        for part in name.split("."):
            kind = getattr(kind, part)
        logint: BaseLogint = kind(run)
        logint.open()
    except BaseException as error:  # noqa: BLE001
        told.note(f"it could not begin: {described(error)}")
        return FAILED
    status = _taken(records, logint, told)
    try:
        logint.flush()
        logint.finish(status)
    except BaseException as error:  # noqa: BLE001
        told.note(f"it could not end: {described(error)}")
        return FAILED
    told.ended = True
    # Some trackers write the last of it here; the process ends without them otherwise.
    atexit._run_exitfuncs()
    return 0


def _taken(records: _Records, logint: BaseLogint, told: SharedCount) -> Any:
    """Hand on what comes; returns the status at the end."""
    unwritten = 0
    while True:
        if unwritten and (unwritten >= MOST_UNWRITTEN or not records.wait_there()):
            _write(logint, told, unwritten)
            unwritten = 0
        message = records.next()
        if not isinstance(message, bytes):
            if unwritten:
                _write(logint, told, unwritten)
            return message or "killed"
        try:
            logint.take(pickle.loads(message))  # noqa: S301
        except BaseException as error:  # noqa: BLE001
            told.note(described(error))
            told.seen += 1
        else:
            unwritten += 1
            if not _writes_many(logint):
                _write(logint, told, unwritten)
                unwritten = 0


def _writes_many(logint: BaseLogint) -> bool:
    from dftrace_ai.loggers.interfaces.base import BaseLogint

    return type(logint).lull is not BaseLogint.lull


def _write(logint: BaseLogint, told: SharedCount, count: int) -> None:
    try:
        logint.lull()
    except BaseException as error:  # noqa: BLE001
        told.note(described(error))
    else:
        told.taken += count
    told.seen += count
