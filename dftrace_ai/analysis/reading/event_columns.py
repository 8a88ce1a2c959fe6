"""The events of a file as columns, names as numbers, arguments when asked for; needs NumPy."""

from __future__ import annotations

import os
import weakref
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import orjson

from dftrace_ai import system
from dftrace_ai._reader import EventTable, whole_numbers
from dftrace_ai.analysis.reading import long_columns
from dftrace_ai.analysis.reading.argument_members import Members, Wanted
from dftrace_ai.analysis.reading.long_columns import Growing
from dftrace_ai.analysis.reading.scanning import (
    BEGIN,
    LETTERS,
    BlocksRead,
    TraceBlocks,
    argument_places,
    new_scanner,
)
from dftrace_ai.errors import TraceError, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading.reader import Start
    from dftrace_ai.analysis.reading.set_aside import SetAside
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_set import TraceSet
    from dftrace_ai.trace_format.json_types import Json


# Who goes through the spans of a thread in the order of time stays in few blocks for long.
BYTES_AT_HAND = 4 * 1024 * 1024

# By its last bytes the last block is known again.
LAST_BYTES = 64

# Of a job with many ranks only those that were asked last have blocks at hand.
TRACES_AT_ONCE = 8


class Arguments(Protocol):
    """The arguments of rows as JSON."""

    @property
    def members(self) -> tuple[Members, ...]:
        """What was taken of them while they were read, as it was wanted."""

    def text_of(self, row: int) -> memoryview:
        """Return those of a row; empty where it has none."""

    def texts_of(self, rows: NDArray[Any]) -> Iterable[memoryview]:
        """Return those of rows that rise; empty where one has none."""

    def numbers_of(self, rows: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
        """Return the whole numbers by these names of rows that rise; -2**63 for none."""


class BlockArguments(NamedTuple):
    """The arguments of the rows of a block: where in its text those of each row begin and end."""

    text: memoryview
    begins: NDArray[Any]
    ends: NDArray[Any]

    @classmethod
    def of(cls, block: EventBlock) -> BlockArguments:
        """Return those of a block that was scanned."""
        return cls(block.text, *argument_places(block))

    @property
    def members(self) -> tuple[Members, ...]:
        """Nothing: they are at hand."""
        return ()

    def text_of(self, row: int) -> memoryview:
        """Return those of a row, as JSON; empty where it has none."""
        return self.text[int(self.begins[row]) : int(self.ends[row])]

    def texts_of(self, rows: NDArray[Any]) -> list[memoryview]:
        """Return those of rows, as JSON; empty where one has none."""
        text = self.text
        places = zip(self.begins[rows].tolist(), self.ends[rows].tolist(), strict=True)
        return [text[begin:end] for begin, end in places]

    def numbers_of(self, rows: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
        """Return the whole numbers by these names, a row for each; -2**63 where one has none."""
        begins, ends = (places[rows].astype(np.int64) for places in (self.begins, self.ends))
        found = [whole_numbers(self.text, begins, ends, name) for name in names]
        return np.frombuffer(b"".join(found), np.int64).reshape(len(names), -1)


class _Kept(NamedTuple):
    """The arguments of a block that cannot be read again by itself, packed."""

    packed: bytes
    begins: NDArray[Any]
    ends: NDArray[Any]


@dataclass(repr=False)
class TraceArguments:
    """The arguments of the rows of a file: read again by blocks; the text of others is kept."""

    trace: Trace
    rows: int = 0
    members: tuple[Members, ...] = ()
    _firsts: list[int] = field(default_factory=list)
    _pieces: list[tuple[int, int] | _Kept] = field(default_factory=list)
    _at_hand: dict[int, BlockArguments] = field(default_factory=dict)
    # What was asked of each piece before, where somebody will ask it again.
    _numbers: dict[tuple[int, int, tuple[str, ...]], tuple[NDArray[Any], NDArray[Any]]] | None = (
        None
    )

    def add(self, rows: int, piece: tuple[int, int] | _Kept) -> None:
        """Take in the rows of the block that was read last: where it is, or its text."""
        if rows:
            self._firsts.append(self.rows)
            self._pieces.append(piece)
            self.rows += rows

    def __reduce__(self) -> tuple[object, ...]:
        # A copy reads for itself.
        known = (self.trace, self.rows, self.members, self._firsts, self._pieces)
        return TraceArguments, known

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        return len(self._pieces)

    def text_of(self, row: int) -> memoryview:
        """Return those of a row, as JSON; empty where it has none.

        Raises:
            TraceError: the file is not what it was when it was read.
        """
        piece = bisect_right(self._firsts, row) - 1
        return self._at(piece).text_of(row - self._firsts[piece])

    def texts_of(self, rows: NDArray[Any]) -> Iterator[memoryview]:
        """Yield those of rows that rise, as JSON; empty where one has none."""
        cuts = np.searchsorted(rows, [*self._firsts, self.rows]).tolist()
        for piece, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                yield from self._at(piece).texts_of(rows[low:high] - self._firsts[piece])

    def numbers_of(self, rows: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
        """Return the whole numbers by these names of rows that rise; -2**63 where one has none."""
        for members in self.members:
            at = members.of(rows) if all(name in members.columns for name in names) else None
            if at is not None:
                return np.stack([members.columns[name][at] for name in names])
        cuts = np.searchsorted(rows, [*self._firsts, self.rows]).tolist()
        found = np.empty((len(names), len(rows)), np.int64)
        for piece, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                found[:, low:high] = self._numbers_at(piece, rows[low:high], tuple(names))
        return found

    def _numbers_at(self, piece: int, rows: NDArray[Any], names: tuple[str, ...]) -> NDArray[Any]:
        key = piece, int(rows[0]), names
        known = None if self._numbers is None else self._numbers.get(key)
        if known is not None and np.array_equal(known[0], rows):
            return known[1]
        found = self._at(piece).numbers_of(rows - self._firsts[piece], names)
        if self._numbers is not None:
            self._numbers[key] = rows, found
        return found

    def cut(self, pieces: int, rows: int) -> None:
        """Let go of all pieces but the first ones."""
        del self._firsts[pieces:], self._pieces[pieces:]
        self.rows = rows
        self._at_hand = {at: one for at, one in self._at_hand.items() if at < pieces}
        if self._numbers:
            self._numbers = {key: one for key, one in self._numbers.items() if key[0] < pieces}

    def _at(self, piece: int) -> BlockArguments:
        found = self._at_hand.pop(piece, None)
        if found is None:
            found = self._read(piece)
            _RECENT.use(self)
            while self._at_hand and self._bytes_at_hand() + len(found.text) > BYTES_AT_HAND:
                # Another thread may have had it let go of all.
                self._at_hand.pop(next(iter(self._at_hand), -1), None)
        self._at_hand[piece] = found  # the last one that was asked for stands last
        return found

    def _bytes_at_hand(self) -> int:
        return sum(len(arguments.text) for arguments in [*self._at_hand.values()])

    def _read(self, piece: int) -> BlockArguments:
        which = self._pieces[piece]
        if isinstance(which, _Kept):
            import zstandard

            return BlockArguments(memoryview(zstandard.decompress(which.packed)), *which[1:])
        place, size = which
        file, scanner = self.trace.file, new_scanner()
        with readable(self.trace), file.opened() as raw:
            if file.codec == "plain":
                text = system.read_at(raw.fileno(), size, place)
                block = scanner.scan(text if text.endswith(b"\n") else text + b"\n")
            else:
                end = min(os.fstat(raw.fileno()).st_size, place + size)
                read = scanner.read_block(raw.fileno(), file.codec, place, end)
                block = read[0] if read else scanner.scan(b"")
        rows = (*self._firsts, self.rows)[piece + 1] - self._firsts[piece]
        if block.rows != rows:
            raise TraceError(f"{self.trace}: was changed while it was read")
        return BlockArguments.of(block)


class _Recent:
    """The files that were asked last; those before them let go of their blocks."""

    def __init__(self) -> None:
        self._asked: list[weakref.ref[TraceArguments]] = []

    def use(self, asked: TraceArguments) -> None:
        """Note that a file is asked now."""
        there = [(one, one()) for one in self._asked]
        self._asked = [one for one, held in there if held is not None and held is not asked]
        self._asked.append(weakref.ref(asked))
        for one in self._asked[:-TRACES_AT_ONCE]:
            held = one()
            if held is not None:
                held._at_hand.clear()
        del self._asked[:-TRACES_AT_ONCE]


_RECENT = _Recent()


def _kept(block: EventBlock) -> _Kept:
    import zstandard

    packed = zstandard.ZstdCompressor(level=1).compress(block.text)
    # A block holds less text than 32 bits count.
    begins, ends = (places.astype(np.uint32) for places in argument_places(block))
    return _Kept(packed, begins, ends)


Integers: TypeAlias = "NDArray[Any]"
"""A column of whole numbers."""

COLUMNS: Final = ("ph", "label", "id", "pid", "tid", "start_ns", "dur_ns", "outermost")


def _read(block: EventBlock, name: str) -> Integers:
    if name == "outermost":
        # No parent is 0, or where ids are left out the greatest number, behind which comes 0.
        outermost: Integers = np.asarray(block.parent) + np.uint64(1) <= 1
        return outermost.view(np.uint8)
    return np.asarray(getattr(block, name))


NO_ARGUMENTS: Final = b"{}"
# The arguments of so many events are decoded together.
DECODED_AT_ONCE: Final = 1_000


class Label(NamedTuple):
    """What an event is called."""

    cat: str
    name: str


@dataclass(frozen=True, repr=False)
class EventNames:
    """How the events of a trace are called: of each row the place in `labels`."""

    trace: Trace
    labels: tuple[Label, ...]
    label: Integers
    arguments: Arguments

    def __len__(self) -> int:
        return len(self.label)

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self.trace}>"

    def args(self, row: int) -> dict[str, Json]:
        """Return the arguments of an event, decoded now; empty where it has none.

        Raises:
            TraceError: they have to be read anew, and the file is not what it was.
        """
        return decoded(self.arguments.text_of(row))

    def all_args(self, rows: Integers) -> Iterator[dict[str, Json]]:
        """Yield the arguments of events whose numbers rise, as `args`; of many in less time."""
        texts = iter(self.arguments.texts_of(rows))
        while some := [text or NO_ARGUMENTS for text in islice(texts, DECODED_AT_ONCE)]:
            try:
                values = orjson.loads(b"[%b]" % b",".join(some))
            except orjson.JSONDecodeError:
                values = map(decoded, some)
            for value in values:
                yield value if isinstance(value, dict) else {}


def decoded(text: memoryview | bytes | str) -> dict[str, Json]:
    """Return arguments that are JSON; empty where they are no object."""
    if not text:
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}  # numbers beyond what JSON's readers take
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, repr=False)
class EventColumns(EventNames):
    """The events of a trace, one row each, in no order.

    Columns have the narrowest whole numbers that hold what is in them, and may not be written to:
    `ph` the number of the letter of the phase; `id` 0 where there is none; `start_ns` since 1970,
    -1 for a line without a time; `dur_ns` -1 for all but finished spans; `outermost` 1 for a line
    that names no span around it.
    """

    ph: Integers
    id: Integers
    pid: Integers
    tid: Integers
    start_ns: Integers
    dur_ns: Integers
    outermost: Integers

    @property
    def names(self) -> EventNames:
        """The names alone, which hold none of the other columns in memory."""
        return EventNames(self.trace, self.labels, self.label, self.arguments)


def event_columns(traces: TraceSet, wanted: Sequence[Wanted] = ()) -> Iterator[EventColumns]:
    """Yield the events of each trace that has some; afterwards `notes` of `traces` are set.

    What is `wanted` of their arguments is taken while they are read, as `Arguments.members`.

    Raises:
        TraceError: a file cannot be read any more, or its names need too much memory.
    """
    notes: list[str] = []
    traces.notes = ()
    for trace in traces:
        # Whoever asks holds the columns, and nobody else.
        found = [_so_far(trace).columns(trace, notes, wanted)]
        if found[0]:
            yield found.pop()  # type: ignore[misc]
    traces.notes = tuple(notes)


class EventPieces:
    """The events of a trace in the order of its lines, some at a time; then how all are called."""

    def __init__(self, trace: Trace, wanted: Sequence[Wanted], aside: SetAside) -> None:
        self.notes: list[str] = []
        self._read, self._trace, self._wanted = ReadSoFar(trace, kept=False), trace, wanted
        self._label: list[Integers] = []
        self._members = [_MembersSoFar(one, aside) for one in wanted]

    def __iter__(self) -> Iterator[tuple[int, EventColumns]]:
        """Yield the number of the first event of each piece, and the piece; as `event_columns`.

        Members of arguments are those of the piece, and their rows, too.
        """
        first = 0
        for columns in self._read.pieces(self._trace, self.notes, self._wanted):
            self._label.append(columns.label)
            for some, members in zip(self._members, columns.arguments.members, strict=True):
                some.add(first, members)
            yield first, columns
            first += len(columns)

    @property
    def names(self) -> EventNames:
        """How all of them are called; they have been gone through."""
        arguments = self._read._arguments
        arguments.members = tuple(some.whole() for some in self._members)
        label = np.concatenate(self._label)
        self._label.clear()
        return EventNames(self._trace, tuple(self._read._labels), label, arguments)


class _MembersSoFar:
    """Members of arguments of a file, put together of those of its pieces."""

    def __init__(self, wanted: Wanted, aside: SetAside) -> None:
        self._rows = Growing("beside", aside)
        self._columns = {name: Growing("beside", aside) for name in wanted.names}
        self._texts: tuple[str, ...] = ()

    def add(self, first: int, members: Members) -> None:
        self._rows.add(members.rows if not first else first + members.rows.astype(np.int64))
        for name, values in members.columns.items():
            self._columns[name].add(values)
        self._texts = members.texts

    def whole(self) -> Members:
        columns = {name: column.whole() for name, column in self._columns.items()}
        return Members(self._rows.whole(), columns, self._texts)


class BlockColumns:
    """Reads files block by block; the codes of names hold for all blocks of all of them."""

    def __init__(self) -> None:
        self._scanner = new_scanner()
        self._labels: tuple[Label, ...] = ()

    def blocks(self, trace: Trace, start: Start = BEGIN) -> TraceBlocks:
        """Return the blocks of a file, from a place on."""
        return TraceBlocks(self._scanner, trace, start)

    def of(self, blocks: TraceBlocks) -> Iterator[tuple[EventBlock, EventColumns]]:
        """Yield each of these blocks, and its events."""
        for block in blocks:
            more = self._scanner.labels(len(self._labels))
            self._labels += tuple(Label(cat, name) for cat, name in more)
            columns = {name: np.array(_read(block, name)) for name in COLUMNS}
            columns["ph"] = LETTERS[columns["ph"]]
            arguments = BlockArguments.of(block)
            yield block, EventColumns(blocks.trace, self._labels, arguments=arguments, **columns)


class ReadSoFar:
    """What was read of a file that is still written: of its whole blocks nothing is read again."""

    def __init__(self, trace: Trace, *, kept: bool = True) -> None:
        self._kept = kept
        self._begin(trace, ())

    def _begin(self, trace: Trace, wanted: Sequence[Wanted]) -> None:
        self._arguments = TraceArguments(trace, _numbers={} if self._kept else None)
        self._wanted = wanted
        self._scanner = new_scanner()
        asked = [(one.whole, one.micros, one.texts, ord(one.phase or "\0")) for one in wanted]
        self._table = EventTable(self._scanner, LETTERS.tobytes(), tuple(asked))
        self._labels: list[Label] = []
        # Of whole blocks: where they end, lines in them that cannot be read, their pieces and rows.
        self._whole, self._unreadable, self._pieces, self._rows = BEGIN, 0, 0, 0
        self._known: tuple[object, ...] = ()

    def _known_of(self, trace: Trace) -> tuple[object, ...]:
        """Return what stays as it is while a file grows, with the last bytes that were read."""
        place = self._whole.file_bytes
        with readable(trace), trace.file.opened() as raw:
            info = os.fstat(raw.fileno())
            last = system.read_at(raw.fileno(), min(place, LAST_BYTES), max(0, place - LAST_BYTES))
        base_us = trace.header and trace.header.time_base_us
        return info.st_dev, info.st_ino, trace.file.codec, base_us, last

    def columns(
        self, trace: Trace, notes: list[str], wanted: Sequence[Wanted]
    ) -> EventColumns | None:
        """Return the events of a file as it is now; None where it has none.

        Raises:
            TraceError: the file cannot be read any more, or its names need too much memory.
        """
        same = not self._kept or self._known == self._known_of(trace)
        if not same or self._wanted != wanted:
            self._begin(trace, wanted)
        arguments, table = self._arguments, self._table
        arguments.trace = trace
        arguments.cut(self._pieces, self._rows)
        table.cut(self._rows)
        blocks = TraceBlocks(self._scanner, trace, self._whole, self._unreadable)
        for block in blocks.into(table, self._learn):
            self._note(block, blocks)
            if blocks.whole != self._whole:
                self._whole, self._unreadable = blocks.whole, blocks.unreadable
                self._pieces, self._rows = arguments.pieces, arguments.rows
        notes += blocks.notes
        if self._kept:
            self._known = self._known_of(trace)
        if not arguments.rows:
            return None
        self._learn()
        return self._columns(trace, kept=self._kept)

    def pieces(
        self, trace: Trace, notes: list[str], wanted: Sequence[Wanted]
    ) -> Iterator[EventColumns]:
        """Yield the events of a file, about as many at a time as a stretch has."""
        self._begin(trace, wanted)
        table = self._table
        blocks = TraceBlocks(self._scanner, trace)
        for block in blocks.into(table, self._learn, long_columns.ROWS_AT_ONCE):
            self._note(block, blocks)
            if table.rows >= long_columns.ROWS_AT_ONCE:
                self._learn()
                yield self._columns(trace, kept=True)
                table.cut(0)
        notes += blocks.notes
        if table.rows:
            self._learn()
            yield self._columns(trace, kept=False)

    def _note(self, block: BlocksRead | EventBlock, blocks: TraceBlocks) -> None:
        if isinstance(block, BlocksRead):
            place = block.place
            for size, rows in block.sizes:
                self._arguments.add(rows, (place, size))
                place += size
        else:
            self._arguments.add(block.rows, blocks.place or _kept(block))

    def _columns(self, trace: Trace, *, kept: bool) -> EventColumns:
        table = self._table
        columns = _told(COLUMNS, table.columns(kept), table.rows)
        members = zip(self._wanted, table.members(kept), strict=True)
        self._arguments.members = tuple(
            Members(_told(("",), rows, count)[""], _told(one.names, values, count), (*texts,))
            for one, (count, rows, values, texts) in members
        )
        return EventColumns(trace, tuple(self._labels), arguments=self._arguments, **columns)

    def _learn(self) -> None:
        """Take the names that have come since."""
        more = [Label(cat, name) for cat, name in self._scanner.labels(len(self._labels))]
        self._labels += more
        self._table.learn(tuple(bytes(one.of(*label) for label in more) for one in self._wanted))


def _told(
    names: Sequence[str], values: Sequence[tuple[memoryview | int, str]], rows: int
) -> dict[str, Integers]:
    """Return columns of so many rows; a value that all have is there once."""
    return {
        name: np.broadcast_to(np.dtype(form).type(value), (rows,))
        if isinstance(value, int)
        else np.asarray(value)
        for name, (value, form) in zip(names, values, strict=True)
    }


_READ_ON: Final[dict[Path, ReadSoFar]] = {}


def _so_far(trace: Trace) -> ReadSoFar:
    return _READ_ON.get(trace.path) or ReadSoFar(trace, kept=False)


def is_read_on(trace: Trace) -> bool:
    """Return whether of a file only what has come since is read."""
    return trace.path in _READ_ON


def read_on(traces: Iterable[Trace]) -> None:
    """Read of these files from now on what has come since, until others are named."""
    kept = {trace.path: _READ_ON.get(trace.path) or ReadSoFar(trace) for trace in traces}
    _READ_ON.clear()
    _READ_ON.update(kept)
