"""The events of one trace file as columns, with categories and names as numbers; needs NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson

from dftrace_ai.analysis.reading.scanning.arguments import BlockArguments, TraceArguments
from dftrace_ai.analysis.reading.scanning.blocks import LETTERS, TraceBlocks, new_scanner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading.scanning.arguments import Arguments
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_set import TraceSet
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = [
    "BlockColumns",
    "EventColumns",
    "EventNames",
    "Integers",
    "Label",
    "event_columns",
]

Integers: TypeAlias = "NDArray[Any]"
"""A column of whole numbers."""

# What the columns of a whole file are held in, the first that does. Times are calculated with.
KINDS: Final[dict[str, tuple[type[np.integer[Any]], ...]]] = {
    "ph": (np.uint8,),
    "label": (np.uint8, np.uint16, np.uint32),
    "id": (np.uint32, np.uint64),
    "pid": (np.int32, np.int64),
    "tid": (np.int32, np.int64),
    "start_ns": (np.int64,),
    "dur_ns": (np.int64,),
}


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

    def args(self, row: int) -> JsonObject:
        """Return the arguments of an event, decoded now; empty where it has none.

        Raises:
            TraceError: they have to be read anew, and the file is not what it was.
        """
        return _decoded(self.arguments.text_of(row))

    def all_args(self, rows: Integers) -> Iterator[JsonObject]:
        """Yield the arguments of events whose numbers rise, as `args`; of many in less time."""
        texts = iter(self.arguments.texts_of(rows))
        while some := [text or NO_ARGUMENTS for text in islice(texts, DECODED_AT_ONCE)]:
            try:
                values = orjson.loads(b"[%b]" % b",".join(some))
            except orjson.JSONDecodeError:
                values = map(_decoded, some)
            for value in values:
                yield value if isinstance(value, dict) else {}


def _decoded(text: memoryview | bytes) -> JsonObject:
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
    -1 for a line without a time; `dur_ns` -1 for all but finished spans.
    """

    ph: Integers
    id: Integers
    pid: Integers
    tid: Integers
    start_ns: Integers
    dur_ns: Integers

    @property
    def names(self) -> EventNames:
        """The names alone, which hold none of the other columns in memory."""
        return EventNames(self.trace, self.labels, self.label, self.arguments)


def event_columns(traces: TraceSet) -> Iterator[EventColumns]:
    """Yield the events of each trace that has some; afterwards `notes` of `traces` are set.

    Raises:
        TraceError: a file cannot be read any more, or its names need too much memory.
    """
    notes: list[str] = []
    traces.notes = ()
    for trace in traces:
        # Whoever asks holds the columns, and nobody else.
        found = [_scan(trace, notes)]
        if found[0]:
            yield found.pop()  # type: ignore[misc]
    traces.notes = tuple(notes)


class BlockColumns:
    """Reads files block by block; the codes of names hold for all blocks of all of them."""

    def __init__(self) -> None:
        self._scanner = new_scanner()
        self._labels: tuple[Label, ...] = ()

    def blocks(self, trace: Trace) -> TraceBlocks:
        """Return the blocks of a file."""
        return TraceBlocks(self._scanner, trace)

    def of(self, blocks: TraceBlocks) -> Iterator[tuple[EventBlock, EventColumns]]:
        """Yield each of these blocks, and its events."""
        for block in blocks:
            more = self._scanner.labels(len(self._labels))
            self._labels += tuple(Label(cat, name) for cat, name in more)
            columns = {name: np.array(getattr(block, name)) for name in KINDS}
            columns["ph"] = LETTERS[columns["ph"]]
            arguments = BlockArguments.of(block)
            yield block, EventColumns(blocks.trace, self._labels, arguments=arguments, **columns)


def _scan(trace: Trace, notes: list[str]) -> EventColumns | None:
    """Read a file; None where it has no events."""
    columns = {name: _Column(kinds) for name, kinds in KINDS.items()}
    arguments = TraceArguments(trace)
    scanner = new_scanner()
    blocks = TraceBlocks(scanner, trace)
    for block in blocks:
        if block.rows:
            for name, column in columns.items():
                column.add(np.asarray(getattr(block, name)))
            arguments.add(block, blocks)
    notes += blocks.notes
    if not arguments.rows:
        return None
    whole = {name: column.whole() for name, column in columns.items()}
    whole["ph"] = LETTERS[whole["ph"]]
    labels = tuple(Label(cat, name) for cat, name in scanner.labels(0))
    return EventColumns(trace, labels, arguments=arguments, **whole)


class _Column:
    """A column that grows, in the narrowest whole numbers of some kinds that hold it."""

    def __init__(self, kinds: Sequence[type[np.integer[Any]]]) -> None:
        self._kinds = list(kinds)
        self._count = 0
        # What all rows have so far; such a column has no values yet.
        self._same: Any = None
        self._values: Integers = np.empty(0, self._kinds[0])

    def add(self, piece: Integers) -> None:
        """Add rows."""
        count = self._count + len(piece)
        while len(self._kinds) > 1 and not _fits(piece, self._kinds[0]):
            del self._kinds[0]
            self._values = self._values.astype(self._kinds[0])
        if self._same is None:
            self._same = piece[0]
        if len(self._values) or not (piece == self._same).all():
            if not len(self._values):
                self._values = np.full(self._count, self._same, self._kinds[0])
            if count > len(self._values):
                # Memory is moved, and not there twice.
                self._values.resize(count + count // 4, refcheck=False)
            self._values[self._count : count] = piece
        self._count = count

    def whole(self) -> Integers:
        """Return all rows; a value that all have is there once."""
        if not len(self._values):
            return np.broadcast_to(self._kinds[0](self._same), (self._count,))
        self._values.resize(self._count, refcheck=False)
        return self._values


def _fits(piece: Integers, kind: type[np.integer[Any]]) -> bool:
    reach = np.iinfo(kind)
    return bool(reach.min <= piece.min() and piece.max() <= reach.max)
