"""The lines of a file that the native reader gives: those of a time, or that need a look."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from dftrace_ai._reader import WindowLines
from dftrace_ai.analysis.reading.reader import LongLine, Start, TraceReader, as_line
from dftrace_ai.errors import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai._reader import Checking
    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Tear, TraceFile

NS_PER_US: Final = 1000

# More than doubles are off at the times of today, in nanoseconds: who is that near is looked at.
MARGIN_NS: Final = 4000

# The native reader adds such times up without passing the range of its integers, and knows none
# that are beyond.
MOST_NS: Final = 2**62


class GivenLines:
    """Number, plain bytes before it, and bytes of each line that is given, as of `TraceReader`.

    `tear` and `end` (bytes of the file that are read) are known after the last line. Blocks that
    the native reader does not take (torn, broken, huge) are unpacked in Python; their lines go
    through it all the same.
    """

    def __init__(
        self, file: TraceFile, reader: Checking | WindowLines, end: int | None = None
    ) -> None:
        self._file = file
        self._reader = reader
        self.tear: Tear | None = None
        self.end = end

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        native = self._reader
        place = plain_bytes = 0
        with readable(self._file), self._file.opened() as raw:
            end = os.fstat(raw.fileno()).st_size if self.end is None else self.end
            if self._file.codec != "plain":
                native.open_blocks(raw.fileno(), self._file.codec, end)
                while place < end and (size := native.read_block(place)):
                    place += size
                    yield from self._given()
                plain_bytes = native.plain_bytes
        self.end = end
        copy = self._file.copy
        if place < end or not end or (copy and copy.tear):
            yield from self._unpacked(Start(place, plain_bytes, native.lines), end)

    def _unpacked(self, start: Start, end: int) -> Iterator[tuple[int, int, bytes]]:
        """Go on where the native reader stopped."""
        native = self._reader
        reader = TraceReader(self._file)
        for text in reader.texts(start, end):
            if isinstance(text, LongLine):
                plain_bytes = native.plain_bytes
                native.pass_over(text.size + 1)
                yield native.lines, plain_bytes, text
            else:
                native.add_lines(text)
                yield from self._given()
        self.tear = reader.tear

    def _given(self) -> Iterator[tuple[int, int, bytes]]:
        next_line = self._reader.next_line
        while (given := next_line()) is not None:
            number, plain_bytes, line = given
            yield number, plain_bytes, as_line(line)


def lines_near(trace: Trace, window: TimeWindow | None, shift_us: int) -> LinesNear:
    """Return the lines of a trace, but for events that are plainly outside of a window.

    `shift_us` is added to the times of the lines before they are compared with it; a time that is
    negative then counts as 0. None for a window is everything.
    """
    if window is None:
        return LinesNear(trace, WindowLines(-MOST_NS, MOST_NS, -MOST_NS))
    shift_ns = shift_us * NS_PER_US
    first_ns = int(window.begin_us * NS_PER_US) - shift_ns - MARGIN_NS
    last_ns = int(window.end_us * NS_PER_US) - shift_ns + MARGIN_NS
    within = (max(-MOST_NS, min(ns, MOST_NS)) for ns in (first_ns, last_ns, -shift_ns))
    return LinesNear(trace, WindowLines(*within))


class LinesNear:
    """Iterates over lines as `TraceReader` has them; `lines_near` makes it."""

    def __init__(self, trace: Trace, window: WindowLines) -> None:
        self._window = window
        self._given = GivenLines(trace.file, window)

    def __iter__(self) -> Iterator[bytes]:
        return (line for _, _, line in self._given)

    @property
    def tear(self) -> Tear | None:
        """Where reading had to stop; known after the last line."""
        return self._given.tear

    @property
    def left_out_us(self) -> tuple[float, float] | None:
        """From the first beginning to the last end of the events that were left out."""
        left_out = self._window.left_out
        return left_out and (left_out[0] / NS_PER_US, left_out[1] / NS_PER_US)
