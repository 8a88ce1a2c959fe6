"""A tracker in a process of its own: what it does to its process harms no other."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import signal
import struct
import subprocess
import time
from collections import deque
from typing import TYPE_CHECKING

from dftrace_ai.interpreters import clean_environment, interpreter, paths
from dftrace_ai.loggers.delivery.delivery import Standing, Tracker, TrackerProcessError
from dftrace_ai.loggers.delivery.shared_count import Progress, SharedCount
from dftrace_ai.spools.held import HeldFile

if TYPE_CHECKING:
    from dftrace_ai.loggers.delivery.waiting import Limit
    from dftrace_ai.loggers.records import Record, Status
    from dftrace_ai.loggers.trackers.base import BaseLogint, RunFacts

LENGTH = struct.Struct("<q")
# In place of a length: the run ends so, and nothing follows.
END = -1

# The first process is gone at once, and waited for: a program that waits for any of its children
# does not find the tracker among them.
PROGRAM = """\
import os, sys
if not sys.path[0]:
    del sys.path[0]  # of the working directory, where anything may be called as a module is
if os.fork():
    os._exit(0)
import json
sys.path[:] = json.loads(sys.argv[1])
from dftrace_ai.loggers.delivery.child import serve
serve(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
"""

POLL_S = 0.005
GONE_S = 0.5


class OwnProcess(Tracker):
    """An interface, imported by its name, in a process that reads records from a pipe."""

    def __init__(
        self,
        kind: type[BaseLogint],
        run: RunFacts,
        limit_s: float,
        kept: SharedCount | None = None,
    ) -> None:
        # With `kept` it goes on from what is counted there, and stops at what is refused.
        self._kind = kind
        self._run = run
        self._limit_s = limit_s
        self._told = kept
        self.is_kept = kept is not None
        self._before = kept.seen if kept else 0
        # Sent, and not seen so far as is known.
        self._waiting: deque[Record] = deque()
        self._pipe: HeldFile | None = None
        self._progress: Progress | None = None
        self._is_launched = self._is_forgotten = False
        self._sent = self._seen = 0

    def start(self) -> None:
        """Start the process, on the thread that makes the loggers."""
        # Started on a thread of ours, a fork of the training at this moment would inherit
        # the ends of pipes that are open meanwhile, and whoever waits for their end would
        # wait for the child.
        try:
            command = interpreter()
        except OSError as error:
            raise TrackerProcessError(str(error)) from error
        self._told = self._told or SharedCount.made(self._run.log_dir)
        self._progress = Progress(self._told)
        reading, writing = os.pipe()
        try:
            self._pipe = HeldFile(writing)
            self._launch(command, reading, self._told.number)
        finally:
            os.close(reading)
            self._told.close_number()

    def begin(self) -> None:
        """Tell the process what to open; its answer is not waited for."""
        # A program may have writing to a closed pipe end it, as `head` has `cat`.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        kind = self._kind
        self._send((kind.__module__, kind.__qualname__, self._run, self.is_kept))

    def take(self, record: Record) -> None:
        """Send a record; waits while the pipe is full."""
        self._waiting.append(record)
        self._forget_seen()
        self._send(record)
        self._sent += 1

    def unseen(self) -> list[Record]:
        """Return what its process has not seen, and will not any more; once."""
        self.abandon()
        self._forget_seen()
        left = list(self._waiting)
        self._waiting.clear()
        return left

    def _forget_seen(self) -> None:
        told = self._told
        while told is not None and self._waiting and self._seen < told.seen - self._before:
            self._waiting.popleft()
            self._seen += 1

    def end(self, status: Status, limit: Limit) -> None:
        """Send the end, and wait for the process so long at most."""
        self._write(LENGTH.pack(END) + status.encode())
        self._close_pipe()
        told = self._told
        limit.wait_until(lambda: told is None or told.is_over)
        if told is None or not told.ended:
            raise TrackerProcessError(self._how_it_ended())

    def standing(self) -> Standing:
        """Return how far it has come, as its process tells."""
        told = self._told
        if told is None:
            return Standing(sent=self._sent, seen=self._sent)
        # Nothing more can come to a process that is gone.
        seen = self._sent if told.is_over else told.seen - self._before
        return Standing(self._sent, seen, told.taken - self._before, told.ended, told.fault)

    def moved(self) -> bool:
        """Return whether its process has got on since this was asked."""
        return self._progress is not None and self._progress.moved()

    def abandon(self) -> None:
        """End the process and what it started, if it is still there."""
        # The pipe is left to the thread that may be writing: its number could be another
        # file's by the time of the next call.
        told = self._told
        if told is None or self._is_forgotten or told.is_over or not told.process:
            return
        # The number is nobody else's: who tells that it is over has waited for it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(told.process, signal.SIGKILL)
        self._wait_for_end()

    def forget(self) -> None:
        """Close the pipe in a forked child, so that the process sees the end of the parent."""
        self._is_forgotten = True
        self._close_pipe()

    def _launch(self, command: list[str], reading: int, number: int) -> None:
        output = str(self._run.log_dir / "output.log")
        process = subprocess.Popen(  # noqa: S603 - this interpreter, and a program of ours
            [
                *(*command, "-c", PROGRAM),
                *(paths(), str(number), output, str(self._limit_s)),
            ],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[number],
            env=clean_environment(),
            # Neither Ctrl-C nor the end of the job reaches it: it ends with its pipe.
            start_new_session=True,
        )
        try:
            code = process.wait(max(1.0, self._limit_s))
        except subprocess.TimeoutExpired:
            process.kill()
            raise TrackerProcessError("its process does not start") from None
        if code:
            raise TrackerProcessError(f"its process could not be started: exit status {code}")
        self._is_launched = True

    def _send(self, message: object) -> None:
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._write(LENGTH.pack(len(data)) + data)

    def _write(self, data: bytes) -> None:
        pipe = self._pipe
        if pipe is None:
            raise TrackerProcessError(self._how_it_ended())
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(pipe.now(), view) :]
        except OSError as error:
            self._close_pipe()
            if error.errno == errno.EBADF:
                raise TrackerProcessError("the program has closed its pipe") from error
            raise TrackerProcessError(self._how_it_ended()) from error

    def _how_it_ended(self) -> str:
        told = self._told
        if told is None or not self._is_launched:
            return "its process was not started"
        self._wait_for_end()
        if told.fault:
            return told.fault
        if not told.is_over:
            return "its process does not answer"
        code = told.exit_status
        return (
            f"its process ended by signal {-code}"
            if code < 0
            else f"its process exited with {code}"
        )

    def _wait_for_end(self) -> None:
        told = self._told
        until = time.monotonic() + GONE_S
        while told is not None and not told.is_over and time.monotonic() < until:
            time.sleep(POLL_S)

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
