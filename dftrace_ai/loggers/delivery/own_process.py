"""A tracker in a process of its own: what it does to its process harms no other."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from dftrace_ai.loggers.delivery.shared_count import SharedCount
from dftrace_ai.spools.held_number import HeldNumber

if TYPE_CHECKING:
    from dftrace_ai.loggers.interfaces.base import BaseLogint, RunFacts
    from dftrace_ai.loggers.records import Record, Status

__all__ = ["END", "LENGTH", "OwnProcess", "TrackerProcessError"]

LENGTH = struct.Struct("<q")
# In place of a length: the run ends so, and nothing follows.
END = -1

PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from dftrace_ai.loggers.delivery.child import serve
serve(int(sys.argv[2]))
"""

# What would have the child take part in the run that is traced, or in the job of ranks.
OURS = ("DFTRACE_", "DFTRACER_")
POLL_S = 0.01


class TrackerProcessError(Exception):
    """The tracker's process is gone, or does not listen."""


class OwnProcess:
    """An interface in a process that reads records from a pipe.

    Args:
        kind: the interface; the child imports it by its name.
        run: the run that is logged.
        limit_s: seconds that the child may take to end when this process is gone.
    """

    def __init__(self, kind: type[BaseLogint], run: RunFacts, limit_s: float) -> None:
        self._kind = kind
        self._run = run
        self._limit_s = limit_s
        self._told = SharedCount()
        self._pipe: HeldNumber | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()

    def begin(self) -> None:
        """Start the process, and tell it what to open; its answer is not waited for."""
        import json

        reading, writing = os.pipe()
        try:
            self._pipe = HeldNumber(writing)
            environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
            with open(self._run.log_dir / "output.log", "ab") as output:  # noqa: PTH123
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a program of ours
                    [sys.executable, "-c", PROGRAM, json.dumps(sys.path), str(self._told.number)],
                    stdin=reading,
                    stdout=output,
                    stderr=output,
                    pass_fds=[self._told.number],
                    env=environment,
                    # Neither Ctrl-C nor the end of the job reaches it: it ends with its pipe.
                    start_new_session=True,
                )
        finally:
            os.close(reading)
            self._told.close_number()
        kind = self._kind
        self._send((kind.__module__, kind.__qualname__, self._run, self._limit_s))

    def take(self, record: Record) -> None:
        """Send a record; waits while the pipe is full."""
        self._send(record)

    def end(self, status: Status, limit_s: float) -> None:
        """Send the end, and wait for the process so long at most."""
        self._write(LENGTH.pack(END) + status.encode())
        self._close_pipe()
        process = self._process
        until = time.monotonic() + limit_s
        while process is not None and process.poll() is None and time.monotonic() < until:
            time.sleep(POLL_S)
        if not self._told.ended:
            raise TrackerProcessError(self._told.fault or self._how_it_ended())

    def taken(self) -> int:
        """Return how many records the tracker has taken whole."""
        return self._told.taken

    def fault(self) -> str:
        """Return what went wrong first in the process, or ""."""
        return self._told.fault

    def abandon(self) -> None:
        """Close the pipe, and end the process and what it started, if it is still there."""
        self._close_pipe()
        process = self._process
        if process is None or self._pid != os.getpid() or process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)

    def _send(self, message: object) -> None:
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._write(LENGTH.pack(len(data)) + data)

    def _write(self, data: bytes) -> None:
        pipe = self._pipe
        if pipe is None:
            raise TrackerProcessError(self._told.fault or "its process is not there")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(pipe.now(), view) :]
        except OSError as error:
            self._close_pipe()
            raise TrackerProcessError(self._told.fault or self._how_it_ended()) from error

    def _how_it_ended(self) -> str:
        process = self._process
        if process is None:
            return "its process was not started"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        code = process.returncode
        if code is None:
            return "its process does not answer"
        return (
            f"its process ended by signal {-code}"
            if code < 0
            else f"its process exited with {code}"
        )

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
