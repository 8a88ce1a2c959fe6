"""The process of a tracker, and who stands beside it: keeps its output short, ends it at last."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import pickle
import resource
import select
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.delivery.own_process import END, LENGTH
from dftrace_ai.loggers.delivery.shared_count import Progress, SharedCount
from dftrace_ai.loggers.delivery.waiting import Limit
from dftrace_ai.loggers.trackers.file_paths import opened_file
from dftrace_ai.masking import masked_text
from dftrace_ai.wording import described

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from dftrace_ai.loggers.trackers.base import BaseLogint

FAILED = 1
CHUNK = 1 << 16
# So many records are taken at most before they are written, by trackers that write many at once.
MOST_UNWRITTEN = 500
# Where trackers seldom look that close all the numbers there are.
OUT_OF_THE_WAY = 1 << 16
MOST_OUTPUT = 1 << 20
CUT = b"\n(what it has printed from here on is not kept)\n"
LINE_BYTES = 1 << 16
POLL_MS = 100
LATER_S = 1.0
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
STOPS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def serve(told_by: int, output: str, limit_s: float) -> NoReturn:
    """Serve one training, then exit; whatever the tracker leaves behind ends with the process.

    It tells by the file of `SharedCount` of that number, and may go on for so many seconds when
    the training is gone.
    """
    told = SharedCount.of(told_by)
    told.close_number()
    _own_signals()
    _ignore_termination()
    _take_orphans()
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
            _stand_by(child, 0, printed, Path(output), told, limit_s)
        os._exit(0)
    os.setpgid(0, 0)
    os.close(printed)
    for number in (1, 2):
        os.dup2(printing, number)
    os.close(printing)
    _ignore_termination()
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
        module, name, run, stops = pickle.loads(message)  # noqa: S301
        kind: Any = import_module(module)
        for part in name.split("."):
            kind = getattr(kind, part)
        logint: BaseLogint = kind(run)
        logint.open()
        told.is_open = True
    except BaseException as error:  # noqa: BLE001
        told.note(f"it could not begin: {described(error)}")
        return FAILED
    status = _taken(records, logint, told, stops=stops)
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


def _taken(records: _Records, logint: BaseLogint, told: SharedCount, *, stops: bool) -> Any:
    """Hand on what comes; returns the status at the end. With `stops` what is refused ends it."""
    unwritten = 0
    while True:
        if unwritten and (unwritten >= MOST_UNWRITTEN or not records.wait_there()):
            _write(logint, told, unwritten, stops=stops)
            unwritten = 0
        message = records.next()
        if not isinstance(message, bytes):
            if unwritten:
                _write(logint, told, unwritten, stops=stops)
            return message or "killed"
        try:
            logint.take(pickle.loads(message))  # noqa: S301
        except BaseException as error:
            if stops:
                raise
            told.note(described(error))
            told.seen += 1
        else:
            unwritten += 1
            if not _writes_many(logint):
                _write(logint, told, unwritten, stops=stops)
                unwritten = 0


def _writes_many(logint: BaseLogint) -> bool:
    from dftrace_ai.loggers.trackers.base import BaseLogint

    return type(logint).lull is not BaseLogint.lull


def _write(logint: BaseLogint, told: SharedCount, count: int, *, stops: bool) -> None:
    try:
        logint.lull()
    except BaseException as error:
        if stops:
            raise
        told.note(described(error))
    else:
        told.taken += count
    told.seen += count


def _own_signals() -> None:
    """Undo what is inherited of a training: who ignores its children cannot wait for one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _ignore_termination() -> None:
    """Leave it to the training to end: who stops a whole job stops the training, too."""
    # Processes that the tracker starts can be stopped: they do not ignore it.
    own = os.getpid()

    def on_stop(number: int, frame: object) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for each in STOPS:
        signal.signal(each, on_stop)


def _stand_by(
    child: int, records: int, output: int, kept: Path, told: SharedCount, limit_s: float
) -> None:
    """Stand beside a tracker's process until it ends: keep what it prints, tell how it was."""
    # Only the training has the other end of the pipe of records; when that is gone, the
    # process may go on for so many seconds. One that hangs, or whose C code keeps the
    # interpreter's lock, cannot be relied upon to end itself.
    polled = select.poll()
    polled.register(records, 0)
    polled.register(output, select.POLLIN)
    process = _process_number(child)
    if process is not None:
        polled.register(process, select.POLLIN)
    printed = _Printed(kept)
    limit: Limit | None = None
    status: int | None = None
    while status is None:
        for number, _ in polled.poll(_wait_ms(limit, polls=process is None)):
            if number == records:
                # Its training is gone, or has ended the run.
                polled.unregister(records)
                # It lets a training that has ended the run come first, and tell why.
                later_s = limit_s + LATER_S
                limit = Limit(later_s, Progress(told).moved, later_s)
            elif number == output:
                data = _read_output(output)
                if not data:
                    polled.unregister(output)
                printed.take(data)
        if limit is not None and not limit.left_s():
            os.killpg(child, signal.SIGKILL)
            limit = None
        status = _ended(child)
    # Others that it has started may print for ever.
    os.set_blocking(output, False)
    while not printed.is_full and (data := _read_output(output)):
        printed.take(data)
    printed.end()
    told.let_go()
    told.end(status)
    _clear_away(max(1.0, limit_s))


def _take_orphans() -> None:
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


def _wait_ms(limit: Limit | None, *, polls: bool) -> int | None:
    # Progress comes without a word.
    return POLL_MS if polls or limit is not None else None


def _ended(child: int) -> int | None:
    """Return how a process has ended, if it has; others that have ended are let go."""
    while True:
        found, status = os.waitpid(-1, os.WNOHANG)
        if found == child:
            return os.waitstatus_to_exitcode(status)
        if not found:
            return None


def _read_output(output: int) -> bytes:
    try:
        return os.read(output, 1 << 16)
    except OSError:
        return b""


class _Printed:
    """The file of what a tracker prints: lines without the secrets in them, up to a mebibyte."""

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
