"""Why the steps of a job are slow, while it runs: judged now and then by another interpreter."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from dftrace_ai.interpreters.another import begun, ended
from dftrace_ai.live import jobs_of

if TYPE_CHECKING:
    import subprocess

    from dftrace_ai.live import Snapshot

__all__ = ["WhyNow"]

FUNCTION: Final = ("dftrace_ai.analysis.closing", "print_verdict")

# Beside a training that needs its processors: a tenth of one of them at most.
APART_S: Final = 10.0
REST_TIMES: Final = 9
MOST_S: Final = 60.0

MOST_TRACES: Final = 256
MOST_BYTES: Final = 64 * 1024


class WhyNow:
    """The verdict on what the processes of a job have written so far.

    Nothing is said before there are steps enough, of several jobs, and of one that has written
    more than can be judged in a few seconds.

    Args:
        apart_s: seconds between two judgements at least.

    Example::

        why_now = WhyNow()
        try:
            while True:
                why_now.look(observer.look())
                show(why_now.lines)
        finally:
            why_now.end()
    """

    def __init__(self, apart_s: float = APART_S) -> None:
        self.lines: list[str] = []
        self._apart_s = apart_s
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._began_s = time.monotonic()
        self._next_s = self._began_s

    def look(self, snapshot: Snapshot) -> None:
        """Take in what has been found out, or have it judged anew if it is time; never waits.

        Args:
            snapshot: what the processes are doing.
        """
        now_s = time.monotonic()
        if self._process is not None:
            self._take(self._process, now_s)
        elif now_s >= self._next_s:
            self._begin(snapshot, now_s)

    def end(self) -> None:
        """End the other interpreter, if it is at work."""
        if self._process is not None:
            ended(self._process)
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def _begin(self, snapshot: Snapshot, now_s: float) -> None:
        self._began_s, self._next_s = now_s, now_s + self._apart_s
        jobs = jobs_of(snapshot)
        if len(jobs) != 1:
            self.lines = []
            return
        traces = [p.trace for p in jobs[0].processes if p.trace and Path(p.trace).is_file()]
        if not 0 < len(traces) <= MOST_TRACES:
            self.lines = []
            return
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed in `end`
        try:
            self._process = begun(*FUNCTION, traces, self._output)
        except OSError:
            self.end()  # the table is what was asked for; the next time it may go

    def _take(self, process: subprocess.Popen[bytes], now_s: float) -> None:
        took_s = now_s - self._began_s
        status = process.poll()
        if status is None and took_s < MOST_S:
            return
        if status == 0 and self._output is not None:
            self._output.seek(0)
            self.lines = self._output.read(MOST_BYTES).decode("utf-8", "replace").splitlines()
        else:
            self.lines = []
        self.end()
        self._next_s = now_s + max(self._apart_s, REST_TIMES * took_s)
