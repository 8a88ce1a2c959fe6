"""The blocks of a trace file as columns, one after the other, and what of it was not read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dftrace_ai._reader import EventScanner
from dftrace_ai.analysis.reading.reader import LongLine, Start
from dftrace_ai.analysis.reading.trace_file import tear_told
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.names_and_phases import NUMBERED_PHASES
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Tear

__all__ = ["LETTERS", "TraceBlocks", "argument_places", "arguments_of", "new_scanner"]

# Of all names and categories; who makes a name for every step may make millions.
MOST_LABEL_BYTES: Final = 1024 * 1024 * 1024

# By the letter of a line: dftracer's numbers may stand there as texts, too. 0 is no single letter.
LETTERS: Final = np.arange(256, dtype=np.uint8)
LETTERS[0] = ord("?")
for _number, _letter in NUMBERED_PHASES.items():
    LETTERS[ord(str(_number))] = ord(_letter)

# The year 2100. Times since 1970 in nanoseconds have to fit into 63 bits.
LATEST_BASE_US: Final = 4_102_444_800_000_000


def new_scanner() -> EventScanner:
    """Return a scanner."""
    return EventScanner(MOST_LABEL_BYTES)


def arguments_of(block: EventBlock) -> tuple[list[Any], NDArray[Any]]:
    """Return the arguments of rows that have some, as JSON, and how many bytes each row has."""
    begins, ends = argument_places(block)
    some = ends > 0
    text = block.text
    places = zip(begins[some].tolist(), ends[some].tolist(), strict=True)
    return [text[begin:end] for begin, end in places], ends - begins


def argument_places(block: EventBlock) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return where in the text of a block the arguments of each row begin and end, braces included.

    Those of rows without any begin and end at 0.
    """
    at, sizes = np.array(block.args_at, np.int64), np.array(block.args_bytes, np.int64)
    return np.where(at > 0, at - 1, 0), np.where(at > 0, at + sizes + 1, 0)


class TraceBlocks:
    """Iterates over the blocks of a file; then its members tell what was not read.

    The numbers of names go on from file to file of a scanner.
    """

    def __init__(self, scanner: EventScanner, trace: Trace) -> None:
        self.trace = trace
        self.notes: list[str] = []
        self.tear: Tear | None = None
        self.long_lines = 0
        # Where in the file the block begins that came last, and its bytes there; None where it can
        # be read again with all that is before it alone.
        self.place: tuple[int, int] | None = None
        self._scanner = scanner
        self._lines = self._plain_bytes = self._unreadable = 0
        base_us = (trace.header and trace.header.time_base_us) or 0
        self._base_ns = min(base_us, LATEST_BASE_US) * 1000

    def __iter__(self) -> Iterator[EventBlock]:
        """Yield the blocks.

        Raises:
            TraceError: the file cannot be read any more, or its names need too much memory.
        """
        try:
            for block in self._blocks():
                self._unreadable += block.unreadable
                yield block
        except (OverflowError, MemoryError) as error:
            raise TraceError(f"{self.trace}: its names need too much memory") from error
        if self._unreadable:
            self.notes.append(f"{self.trace}: {counted(self._unreadable, 'line')} without an event")
        self.notes += self.trace.file.notes

    def _blocks(self) -> Iterator[EventBlock]:
        trace = self.trace
        place = 0
        try:
            with trace.file.opened() as raw:
                end = os.fstat(raw.fileno()).st_size
                codec = trace.file.codec
                while codec != "plain" and place < end:
                    found = self._scanner.read_block(raw.fileno(), codec, place, end, self._base_ns)
                    if found is None:
                        break
                    block, packed_bytes = found
                    self.place = place, packed_bytes
                    place += packed_bytes
                    self._lines += block.lines
                    self._plain_bytes += len(block.text)
                    yield block
        except OSError as error:
            raise TraceError(f"{trace}: cannot be read: {error.strerror}") from error
        yield from self._rest(place, end)

    def _rest(self, place: int, end: int) -> Iterator[EventBlock]:
        """What is torn, huge or not compressed."""
        copy = self.trace.file.copy
        if place == end and place and not (copy and copy.tear):
            return
        self.place = None
        reader = self.trace.reader()
        plain = self.trace.file.codec == "plain"
        for text in reader.texts(Start(place, self._plain_bytes, self._lines), end):
            if isinstance(text, LongLine):
                self.long_lines += 1
                place += text.size + 1
            else:
                if plain:
                    self.place = place, len(text)
                    place += len(text)
                whole = text if text.endswith(b"\n") else text + b"\n"
                yield self._scanner.scan(whole, self._base_ns)
        self.tear = reader.tear
        if self.tear:
            self.notes.append(f"{self.trace}: {tear_told(self.tear, 'read')}")
        if self.long_lines:
            self.notes.append(f"{counted(self.long_lines, 'line')} too long to be read")
