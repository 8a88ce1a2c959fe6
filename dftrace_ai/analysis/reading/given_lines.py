"""The lines of a file that the native reader gives: those that need a look."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dftrace_ai.analysis.reading.reader import LongLine, Start, TraceReader, as_line
from dftrace_ai.errors import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai._reader import Checking, Rewriting
    from dftrace_ai.analysis.reading.trace_file import Tear, TraceFile


class GivenLines:
    """Number, plain bytes before it, and bytes of each line that is given, as of `TraceReader`.

    `tear` and `end` (bytes of the file that are read) are known after the last line. Blocks that
    the native reader does not take (torn, broken, huge) are unpacked in Python; their lines go
    through it all the same.
    """

    def __init__(
        self, file: TraceFile, reader: Checking | Rewriting, end: int | None = None
    ) -> None:
        self._file = file
        self._reader = reader
        self.tear: Tear | None = None
        self.end = end

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        for long_line in self.blocks():
            if long_line is None:
                yield from self.given()
            else:
                yield long_line

    def blocks(self) -> Iterator[tuple[int, int, LongLine] | None]:
        """Take one block after the other, whose lines are then `given`; or a line of its own."""
        native = self._reader
        place = plain_bytes = 0
        with readable(self._file), self._file.opened() as raw:
            end = os.fstat(raw.fileno()).st_size if self.end is None else self.end
            if self._file.codec != "plain":
                native.open_blocks(raw.fileno(), self._file.codec, end)
                while place < end and (size := native.read_block(place)):
                    place += size
                    yield None
                plain_bytes = native.plain_bytes
        self.end = end
        copy = self._file.copy
        if place < end or not end or (copy and copy.tear):
            yield from self._unpacked(Start(place, plain_bytes, native.lines), end)

    def _unpacked(self, start: Start, end: int) -> Iterator[tuple[int, int, LongLine] | None]:
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
                yield None
        self.tear = reader.tear

    def given(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the lines of the block that was taken last."""
        next_line = self._reader.next_line
        while (given := next_line()) is not None:
            number, plain_bytes, line = given
            yield number, plain_bytes, as_line(line)
