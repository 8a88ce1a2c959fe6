"""The terminal while it shows a job: a screen of its own, keys, and why its steps are slow.

Loaded late, at a terminal alone: `page` makes the same lines for a pipe.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from dftrace_ai.cli.live_view.page import page
from dftrace_ai.cli.terminal import shown
from dftrace_ai.errors import TraceError
from dftrace_ai.interpreters import begun, ended
from dftrace_ai.live import jobs_of
from dftrace_ai.live.wording import others_text

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from dftrace_ai.live import Observer, Snapshot


FUNCTION: Final = ("dftrace_ai.analysis.closing", "print_verdict")

# Beside a training that needs its processors: a tenth of one of them at most.
APART_S: Final = 10.0
REST_TIMES: Final = 9
MOST_S: Final = 60.0

MOST_TRACES: Final = 256
MOST_BYTES: Final = 64 * 1024


class WhyNow:
    """The verdict on what the processes of a job have written so far.

    Nothing is said before there are steps enough, of several jobs, and of one that has written more
    than can be judged in a few seconds.
    """

    def __init__(self, apart_s: float = APART_S) -> None:
        self.lines: list[str] = []
        self._apart_s = apart_s
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._began_s = time.monotonic()
        self._next_s = self._began_s

    def look(self, snapshot: Snapshot) -> None:
        """Take in what has been found out, or have it judged anew if it is time; never waits."""
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


LEAVING_KEYS = b"qQ\x03\x04"

KEYS_LINE = "q leaves"


class LiveScreen:
    """Looks again and again, and shows what it sees, until it is left."""

    def __init__(self, console: Console, observer: Observer, interval_s: float) -> None:
        self._console = console
        self._observer = observer
        self._interval_s = interval_s
        self._seen: Snapshot | None = None
        self._ended = ""
        self._why_now = WhyNow()

    def run(self) -> None:
        """Show until a key, Ctrl+C or SIGTERM; a TraceError where there is nothing to see."""
        self._seen = self._observer.look()
        with ExitStack() as stack:
            wakes = stack.enter_context(_wakes())
            keys = stack.enter_context(_single_keys())
            stack.callback(self._why_now.end)
            live = Live(console=self._console, screen=True, auto_refresh=False)
            stack.enter_context(live)
            try:
                self._show_until_left(live, keys, wakes)
            except KeyboardInterrupt:
                return

    def _show_until_left(self, live: Live, keys: int | None, wakes: int) -> None:
        sources = [wakes] if keys is None else [wakes, keys]
        next_look = time.monotonic() + self._interval_s
        while True:
            live.update(self._picture(), refresh=True)
            ready, _, _ = select.select(sources, [], [], max(next_look - time.monotonic(), 0.0))
            if keys in ready:
                typed = os.read(keys, 64) if keys is not None else b""
                if not typed or any(key in LEAVING_KEYS for key in typed):
                    return
            if wakes in ready and signal.SIGTERM in os.read(wakes, 64):
                return
            # A change of the terminal's size only has it drawn again.
            if time.monotonic() >= next_look:
                self._look()
                next_look = time.monotonic() + self._interval_s

    def _look(self) -> None:
        try:
            self._seen = self._observer.look()
            self._why_now.look(self._seen)
            self._ended = ""
        except TraceError as error:
            # What was seen last stays: the run has ended.
            self._ended = str(error)

    def _picture(self) -> RenderableType:
        width, height = self._console.size
        parts: list[RenderableType] = []
        if self._seen is not None:
            coloured = self._console.color_system is not None
            parts += page(
                self._seen, width, height - 1, coloured=coloured, verdict=self._why_now.lines
            )
        told = others_text(self._observer.run, self._observer.other_runs)
        last = Text(f"{shown(told)}; {KEYS_LINE}" if told else KEYS_LINE, style="dim")
        if self._ended:
            last = Text(f"{shown(self._ended)}; {KEYS_LINE}", style="yellow")
        last.truncate(width, overflow="ellipsis")
        return Group(*parts, last)


@contextmanager
def _single_keys() -> Iterator[int | None]:
    """Have keys come one by one, without being shown; None where nobody can type."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _wakes() -> Iterator[int]:
    """A descriptor that has the number of every signal that shall be looked at."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handlers = {
        number: signal.signal(number, lambda *_: None)
        for number in (signal.SIGWINCH, signal.SIGTERM)
    }
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
