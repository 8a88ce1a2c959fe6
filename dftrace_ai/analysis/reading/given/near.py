"""The lines of a trace that may be in a window, without a look at those that plainly are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from dftrace_ai.analysis.reading.given.lines import GivenLines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai._reader import WindowLines
    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Tear

__all__ = ["AllLines", "LinesNear", "lines_near"]

NS_PER_US: Final = 1000

# More than doubles are off at the times of today, in nanoseconds: who is that near is looked at.
MARGIN_NS: Final = 4000

# The native reader adds such times up without passing the range of its integers.
MOST_NS: Final = 2**62


class LinesNear(Protocol):
    """Iterates over lines as `TraceReader` has them."""

    def __iter__(self) -> Iterator[bytes]:
        """Read the file."""

    @property
    def tear(self) -> Tear | None:
        """Where reading had to stop; known after the last line."""

    @property
    def left_out_us(self) -> tuple[float, float] | None:
        """From the first beginning to the last end of the events that were left out."""


def lines_near(trace: Trace, window: TimeWindow | None, shift_us: int) -> LinesNear:
    """Return the lines of a trace, but for events that are plainly outside of a window.

    Args:
        trace: the trace.
        window: what is looked for; None for everything.
        shift_us: what is added to the times of the lines before they are compared with it;
            a time that is negative then counts as 0.

    Example::

        for line in lines_near(trace, parsed_window("12s+1s"), 0):
            print(line)
    """
    if window is None:
        return AllLines(trace)
    try:
        from dftrace_ai import _reader
    except ImportError:
        return AllLines(trace)
    shift_ns = shift_us * NS_PER_US
    first_ns = int(window.begin_us * NS_PER_US) - shift_ns - MARGIN_NS
    last_ns = int(window.end_us * NS_PER_US) - shift_ns + MARGIN_NS
    within = (max(-MOST_NS, min(ns, MOST_NS)) for ns in (first_ns, last_ns, -shift_ns))
    return _Given(trace, _reader.WindowLines(*within))


class AllLines:
    """All lines; see `LinesNear`."""

    left_out_us = None

    def __init__(self, trace: Trace, *_: object) -> None:
        self._reader = trace.reader()

    def __iter__(self) -> Iterator[bytes]:
        return (line for _, line in self._reader.lines())

    @property
    def tear(self) -> Tear | None:
        """Where reading had to stop."""
        return self._reader.tear


class _Given:
    def __init__(self, trace: Trace, window: WindowLines) -> None:
        self._window = window
        self._given = GivenLines(trace.file, window)

    def __iter__(self) -> Iterator[bytes]:
        return (line for _, _, line in self._given)

    @property
    def tear(self) -> Tear | None:
        return self._given.tear

    @property
    def left_out_us(self) -> tuple[float, float] | None:
        left_out = self._window.left_out
        return left_out and (left_out[0] / NS_PER_US, left_out[1] / NS_PER_US)
