"""The lines of a file that a native reader gives: it passes over those that need no look at."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dftrace_ai.analysis.reading.reader import LongLine, Start, TraceReader, as_line
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai._reader import Checking, WindowLines
    from dftrace_ai.analysis.reading.trace_file import Tear, TraceFile

__all__ = ["GivenLines"]


class GivenLines:
    """Iterates over number, plain bytes before it, and bytes of each line that is given.

    Lines are as those of `TraceReader`. Blocks that the native reader does not take (torn,
    broken, huge) are unpacked in Python; the lines in them go through it all the same.

    Attributes:
        tear: where reading had to stop; known after the last line, None when all was read.
        end: bytes of the file that are read; known after the last line, if it was not given.

    Args:
        file: the file.
        reader: what takes the lines.
        end: byte of the file to end at; None for all that it has when it is opened.

    Raises:
        TraceError: while iterating, when the operating system refuses to read the file.

    Example::

        for number, plain_bytes, line in GivenLines(trace.file, _reader.Checking(1000)):
            print(number, line)
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
        try:
            with open_regular(self._file.content) as raw:
                end = os.fstat(raw.fileno()).st_size if self.end is None else self.end
                if self._file.codec != "plain":
                    native.open_blocks(raw.fileno(), self._file.codec, end)
                    while place < end and (size := native.read_block(place)):
                        place += size
                        yield from self._given()
                    plain_bytes = native.plain_bytes
        except OSError as error:
            raise TraceError(f"{self._file}: cannot be read: {error.strerror}") from error
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
                native.add_lines(text if text.endswith(b"\n") else text + b"\n")
                yield from self._given()
        self.tear = reader.tear

    def _given(self) -> Iterator[tuple[int, int, bytes]]:
        next_line = self._reader.next_line
        while (given := next_line()) is not None:
            number, plain_bytes, line = given
            yield number, plain_bytes, as_line(line)
