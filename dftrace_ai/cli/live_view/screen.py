"""The terminal while `dftrace top` shows it: a screen of its own, keys, changes of size."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.text import Text

from dftrace_ai.cli.live_view.page import page
from dftrace_ai.cli.live_view.why_now import WhyNow
from dftrace_ai.cli.terminal import shown
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from dftrace_ai.live import Observer, Snapshot

__all__ = ["LiveScreen"]

LEAVING_KEYS = b"qQ\x03\x04"

KEYS_LINE = "q leaves"


class LiveScreen:
    """Looks again and again, and shows what it sees, until it is left.

    Args:
        console: the terminal.
        observer: what to look with.
        interval_s: seconds between two looks.
    """

    def __init__(self, console: Console, observer: Observer, interval_s: float) -> None:
        self._console = console
        self._observer = observer
        self._interval_s = interval_s
        self._seen: Snapshot | None = None
        self._ended = ""
        self._why_now = WhyNow()

    def run(self) -> None:
        """Show until a key, Ctrl+C or SIGTERM.

        Raises:
            TraceError: there is nothing to see at the beginning.
        """
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
        last = Text(KEYS_LINE, style="dim")
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
