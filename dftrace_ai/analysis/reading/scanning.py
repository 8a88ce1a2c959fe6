"""From the text of a trace to columns, natively: for NumPy, which it needs, and for Arrow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from dftrace_ai import _reader
from dftrace_ai._reader import EventScanner
from dftrace_ai.analysis.reading.reader import LongLine, Start
from dftrace_ai.analysis.reading.trace_file import tear_told
from dftrace_ai.errors import TraceError, readable
from dftrace_ai.trace_format.names_and_phases import NUMBERED_PHASES
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock, EventTable
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Tear


_Block = TypeVar("_Block")

# Of all names and categories; who makes a name for every step may make millions.
MOST_LABEL_BYTES: Final = 1024 * 1024 * 1024

BEGIN: Final = Start()

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


MOST_ROWS: Final = 2**63
"""More than any table has."""


def base_ns_of(trace: Trace) -> int:
    """Return when the times of a file begin, on the clock of all files, so that sums have room."""
    base_us = (trace.header and trace.header.time_base_us) or 0
    return min(base_us, LATEST_BASE_US) * 1000


def argument_places(block: EventBlock) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return where in the text of a block the arguments of each row begin and end, braces included.

    Those of rows without any begin and end at 0.
    """
    at, sizes = np.array(block.args_at, np.int64), np.array(block.args_bytes, np.int64)
    return np.where(at > 0, at - 1, 0), np.where(at > 0, at + sizes + 1, 0)


class BlocksRead(NamedTuple):
    """Whole blocks that follow each other, whose events are in a table."""

    place: int  # where in the file the first begins
    sizes: list[tuple[int, int]]  # of each its bytes there, and its events


class TraceBlocks:
    """Iterates over the blocks of a file; then its members tell what was not read.

    The numbers of names go on from file to file of a scanner.
    """

    def __init__(
        self, scanner: EventScanner, trace: Trace, start: Start = BEGIN, unreadable: int = 0
    ) -> None:
        self.trace = trace
        self.notes: list[str] = []
        self.tear: Tear | None = None
        self.long_lines = 0
        # Where in the file the block begins that came last, and its bytes there; None where it can
        # be read again with all that is before it alone.
        self.place: tuple[int, int] | None = None
        # Behind all blocks that are whole, and what cannot be read in them.
        self.whole, self.unreadable = start, unreadable
        self._scanner = scanner
        self._base_ns = base_ns_of(trace)

    def __iter__(self) -> Iterator[EventBlock]:
        """Yield the blocks; a TraceError where it is gone, or its names need too much memory."""
        for block in self._told(self._blocks()):
            self.unreadable += block.unreadable
            yield block

    def into(
        self, table: EventTable, learn: Callable[[], None], most_rows: int = MOST_ROWS
    ) -> Iterator[BlocksRead | EventBlock]:
        """Read the blocks into a table; yields them, one that is torn or huge with its lines.

        `learn` tells the table what is wanted of names that have come since. A table with so many
        rows has to be cut before the next block. Raises as to iterate.
        """
        for block in self._told(self._read_into(table, learn, most_rows)):
            if not isinstance(block, BlocksRead):
                learn()
                table.add(block)
                self.unreadable += block.unreadable
            yield block

    def _told(self, blocks: Iterator[_Block]) -> Iterator[_Block]:
        try:
            yield from blocks
        except (OverflowError, MemoryError) as error:
            raise TraceError(f"{self.trace}: its names need too much memory") from error
        if self.unreadable:
            self.notes.append(f"{self.trace}: {counted(self.unreadable, 'line')} without an event")
        self.notes += self.trace.file.notes

    def _read_into(
        self, table: EventTable, learn: Callable[[], None], most_rows: int
    ) -> Iterator[BlocksRead | EventBlock]:
        trace, codec, whole = self.trace, self.trace.file.codec, self.whole
        place = whole.file_bytes
        with readable(trace), trace.file.opened() as raw:
            end = os.fstat(raw.fileno()).st_size
            goes_on = codec != "plain" and place < end
            while goes_on:
                sizes, plain_bytes, lines, unreadable, goes_on = table.read_blocks(
                    *(raw.fileno(), codec, place, end, self._base_ns, most_rows)
                )
                if goes_on:
                    learn()
                begin, place = place, place + sum(size for size, _ in sizes)
                whole = Start(place, whole.plain_bytes + plain_bytes, whole.lines + lines)
                self.whole, self.unreadable = whole, self.unreadable + unreadable
                yield BlocksRead(begin, sizes)
        yield from self._rest(place, end)

    def _blocks(self) -> Iterator[EventBlock]:
        trace = self.trace
        place, plain_bytes, lines = self.whole.file_bytes, self.whole.plain_bytes, self.whole.lines
        with readable(trace), trace.file.opened() as raw:
            end = os.fstat(raw.fileno()).st_size
            codec = trace.file.codec
            while codec != "plain" and place < end:
                found = self._scanner.read_block(raw.fileno(), codec, place, end, self._base_ns)
                if found is None:
                    break
                block, packed_bytes = found
                self.place = place, packed_bytes
                place += packed_bytes
                plain_bytes, lines = plain_bytes + len(block.text), lines + block.lines
                self.whole = Start(place, plain_bytes, lines)
                yield block
        yield from self._rest(place, end)

    def _rest(self, place: int, end: int) -> Iterator[EventBlock]:
        """What is torn, huge or not compressed."""
        copy = self.trace.file.copy
        if place == end and place and not (copy and copy.tear):
            return
        self.place = None
        reader = self.trace.reader()
        plain = self.trace.file.codec == "plain"
        for text in reader.texts(self.whole, end):
            if isinstance(text, LongLine):
                self.long_lines += 1
                place += text.size + 1
            else:
                if plain:
                    self.place = place, len(text)
                    place += len(text)
                yield self._scanner.scan(text, self._base_ns)
        self.tear = reader.tear
        if self.tear:
            self.notes.append(f"{self.trace}: {tear_told(self.tear, 'read')}")
        if self.long_lines:
            self.notes.append(f"{counted(self.long_lines, 'line')} too long to be read")


LETTER_TEXTS: Final = np.array([chr(letter) for letter in LETTERS.tolist()], object)

Batch = dict[str, "NDArray[Any]"]


def event_batches(
    files: Sequence[Trace], columns: Sequence[str], rows: int, notes: list[str]
) -> Iterator[Batch]:
    """Yield the events of files; see `TraceSet.batches`. `notes` gets what could not be read."""
    for number, trace in enumerate(files):
        scanner = new_scanner()
        blocks = TraceBlocks(scanner, trace)
        texts = _LabelTexts(scanner)
        held: list[Batch] = []
        count = 0
        for block in blocks:
            if not block.rows:
                continue
            texts.follow()
            held.append({name: _column(name, block, number, texts) for name in columns})
            count += block.rows
            if count < rows:
                continue
            whole = _joined(held)
            for begin in range(0, count - count % rows, rows):
                yield _window(whole, begin, begin + rows)
            held, count = [_window(whole, count - count % rows, count)], count % rows
        if count:
            yield _joined(held)
        notes += blocks.notes


class _LabelTexts:
    """Categories and names by the number of both."""

    def __init__(self, scanner: EventScanner) -> None:
        self._scanner = scanner
        self.cat: NDArray[Any] = np.zeros(0, object)
        self.name: NDArray[Any] = np.zeros(0, object)

    def follow(self) -> None:
        """Take those that have come since."""
        new = self._scanner.labels(len(self.cat))
        if new:
            self.cat = np.concatenate([self.cat, np.array([cat for cat, _ in new], object)])
            self.name = np.concatenate([self.name, np.array([name for _, name in new], object)])


def _column(name: str, block: EventBlock, file: int, texts: _LabelTexts) -> NDArray[Any]:
    if name == "file":
        return np.full(block.rows, file, np.uint32)
    if name == "ph":
        phases: NDArray[Any] = LETTER_TEXTS[np.asarray(block.ph)]
        for row, text in block.phases.items():
            phases[row] = text
        return phases
    if name in ("cat", "name"):
        found: NDArray[Any] = getattr(texts, name)[np.asarray(block.label)]
        return found
    if name == "args":
        return _argument_texts(block)
    return np.asarray(getattr(block, name))


def _argument_texts(block: EventBlock) -> NDArray[Any]:
    slices, sizes = arguments_of(block)
    texts = np.full(block.rows, "", object)
    texts[sizes > 0] = np.array([str(text, "utf-8") for text in slices], object)
    return texts


def _window(batch: Batch, begin: int, end: int) -> Batch:
    return {name: values[begin:end] for name, values in batch.items()}


def _joined(held: list[Batch]) -> Batch:
    # Also of one a copy: each block holds all of its lines.
    return {name: np.concatenate([batch[name] for batch in held]) for name in held[0]}


@dataclass(frozen=True, repr=False)
class ArrowBatch:
    """Events that follow each other in a file; `TraceSet.arrow` gives them."""

    block: EventBlock
    file: int
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return self.block.rows

    def __repr__(self) -> str:
        return f"<{len(self)} events: {', '.join(self.columns)}>"

    def __arrow_c_schema__(self) -> object:
        """Return the types of the columns in a capsule."""
        return _reader.arrow_schema(self.columns)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return types and columns in capsules; each column lives as long as somebody holds it."""
        return _reader.arrow_array(self.block, self.file, self.columns)


class ArrowEvents:
    """Iterates over events in batches; as a whole a stream. `tell` gets what was not read."""

    def __init__(
        self,
        files: Sequence[Trace],
        columns: tuple[str, ...],
        tell: Callable[[list[str]], Any],
        first: int = 0,
    ) -> None:
        self._files = files
        self._columns = columns
        self._tell = tell
        self._first = first

    def __repr__(self) -> str:
        return f"<stream of events: {', '.join(self._columns)}>"

    def __iter__(self) -> Iterator[ArrowBatch]:
        """Yield the events, file by file, as many as a block of the file has."""
        for block, file in self._blocks():
            yield ArrowBatch(block, file, self._columns)

    def __arrow_c_schema__(self) -> object:
        """Return the types of the columns in a capsule."""
        return _reader.arrow_schema(self._columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a stream in a capsule, which reads the files when it is asked for their events."""
        return _reader.arrow_stream(self._blocks(), self._columns)

    def _blocks(self) -> Iterator[tuple[EventBlock, int]]:
        # One for all files, so that a name has one number.
        scanner = new_scanner()
        notes: list[str] = []
        for number, trace in enumerate(self._files, self._first):
            blocks = TraceBlocks(scanner, trace)
            for block in blocks:
                if block.rows:
                    yield block, number
            notes += blocks.notes
        self._tell(notes)
