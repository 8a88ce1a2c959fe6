"""A terminal for a program: what it draws, the keys it gets, its size."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from types import TracebackType

from conftest import clean_environment

from live.programs import LIMIT_S

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOME = "\x1b[H"
ALTERNATE_SCREEN, MAIN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
SHOW_CURSOR = "\x1b[?25h"
LAST_LINE = "q leaves"


class Terminal:
    """Runs a `dftrace` command in a pseudo terminal."""

    def __init__(self, *words: object, columns: int = 100, rows: int = 24) -> None:
        self._main, end = pty.openpty()
        self._output = b""
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(end)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dftrace_ai.cli", *map(str, words)],
            stdin=end,
            stdout=end,
            stderr=end,
            env={**clean_environment(), "TERM": "xterm-256color"},
            start_new_session=True,
            # The terminal is the session's, so that Ctrl+C is a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._end = end

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)
        os.close(self._end)
        os.close(self._main)

    def resize(self, columns: int, rows: int) -> None:
        """Gives the terminal another size, of which the program is told."""
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def type(self, keys: str) -> None:
        """Types keys."""
        os.write(self._main, keys.encode())

    def _take(self, seconds: float) -> None:
        ready, _, _ = select.select([self._main], [], [], seconds)
        if ready:
            self._output += os.read(self._main, 65536)

    @property
    def output(self) -> str:
        """All that was written to it."""
        return self._output.decode(errors="replace")

    def frames(self) -> list[list[str]]:
        """Every picture that was drawn, as lines."""
        drawn = CONTROL.sub("", self.output.replace(HOME, "\0")).split("\0")
        return [[line.rstrip() for line in frame.split("\r\n")] for frame in drawn]

    def until(self, holds: Callable[[list[str]], bool], last_line: str = LAST_LINE) -> list[str]:
        """Waits for a picture like that, drawn to its end; returns it."""
        seen = 0
        deadline = time.monotonic() + LIMIT_S
        while True:
            whole = [frame for frame in self.frames() if last_line in frame[:-1]]
            for frame in whole[seen:]:
                if holds(frame):
                    return frame
            seen = len(whole)
            assert time.monotonic() < deadline, self.frames()[-2:]
            assert self.process.poll() is None, self.output[-3000:]
            self._take(0.05)

    def wait(self) -> int:
        """The status it ends with, once all was read that it has written."""
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self._take(0.05)
        self._take(0.0)
        return self.process.wait()

    def is_as_before(self) -> bool:
        """Whether the terminal is as the program found it."""
        after_last_frame = self.output.rpartition(ALTERNATE_SCREEN)[2]
        return (
            termios.tcgetattr(self._end) == self.modes
            and MAIN_SCREEN in after_last_frame
            and SHOW_CURSOR in after_last_frame
        )
