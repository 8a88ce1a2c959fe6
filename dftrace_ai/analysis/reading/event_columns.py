"""The events of one trace file as columns, with categories and names as numbers; needs NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson

from dftrace_ai.analysis.reading.scanning.arguments import BlockArguments, TraceArguments
from dftrace_ai.analysis.reading.scanning.blocks import LETTERS, TraceBlocks, new_scanner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading.scanning.arguments import Arguments
    from dftrace_ai.analysis.reading.scanning.plain_scanner import PlainBlock
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_set import TraceSet
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = [
    "BlockColumns",
    "EventColumns",
    "EventNames",
    "Integers",
    "Label",
    "columns_by_block",
    "event_columns",
]

Integers: TypeAlias = "NDArray[Any]"
"""A column of whole numbers."""

SCANNED: Final = ("ph", "label", "id", "pid", "tid", "start_ns", "dur_ns")

# What a whole file is held in, if it fits. Times stay as they are, for they are calculated with.
NARROWER: Final[dict[str, tuple[type[np.integer[Any]], ...]]] = {
    "label": (np.uint8, np.uint16),
    "id": (np.uint32,),
    "pid": (np.int32,),
    "tid": (np.int32,),
}


class Label(NamedTuple):
    """What an event is called."""

    cat: str
    name: str


@dataclass(frozen=True, repr=False)
class EventNames:
    """How the events of a trace are called, one row each, in no order, and their arguments.

    Attributes:
        trace: the file.
        labels: category and name of each code.
        label: code of category and name.
        arguments: those of each row as JSON.
    """

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

        Args:
            row: number of the row, from 0.

        Raises:
            TraceError: they have to be read anew, and the file is not what it was.
        """
        text = self.arguments.text_of(row)
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

    Columns have the narrowest whole numbers that hold what is in them, and may not be written to.

    Attributes:
        ph: phase, the number of its letter: ``ord("X")``.
        id: number of the event in its process; 0 where there is none.
        pid: process.
        tid: thread or lane.
        start_ns: start, nanoseconds since 1970; -1 for a line without a time.
        dur_ns: end minus start, nanoseconds; -1 for all but finished spans.

    Example::

        for columns in event_columns(open_traces(["out/"])):
            spans = columns.ph == ord("X")
            print(columns.trace, columns.dur_ns[spans].sum())
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
    """Yield the events of each trace, file by file; files without events are left out.

    Args:
        traces: the traces; afterwards their `notes` say what could not be read.

    Raises:
        TraceError: a file cannot be read any more, or its names need too much memory.

    Example::

        traces = open_traces(["out/"])
        print(sum(len(columns) for columns in event_columns(traces)), *traces.notes)
    """
    notes: list[str] = []
    traces.notes = ()
    for trace in traces:
        # Whoever asks holds the columns, and nobody else.
        found = [_scan(trace, notes)]
        if found[0]:
            yield found.pop()  # type: ignore[misc]
    traces.notes = tuple(notes)


def columns_by_block(trace: Trace) -> Iterator[EventColumns]:
    """Yield the events of a trace block by block, so that no more than a block is in memory.

    The codes of names hold for all blocks of the trace.

    Args:
        trace: the file.

    Raises:
        TraceError: as of `event_columns`.

    Example::

        for columns in columns_by_block(trace):
            print(len(columns), columns.labels)
    """
    for _, columns in BlockColumns().of(trace):
        yield columns


class BlockColumns:
    """Reads files block by block; the codes of names hold for all blocks of all of them."""

    def __init__(self) -> None:
        self._scanner = new_scanner()
        self._labels: tuple[Label, ...] = ()

    def of(self, trace: Trace) -> Iterator[tuple[EventBlock | PlainBlock, EventColumns]]:
        """Yield each block of a file, and its events."""
        for block in TraceBlocks(self._scanner, trace):
            more = self._scanner.labels(len(self._labels))
            self._labels += tuple(Label(cat, name) for cat, name in more)
            columns = {name: np.array(getattr(block, name)) for name in SCANNED}
            columns["ph"] = LETTERS[columns["ph"]]
            arguments = BlockArguments.of(block)
            yield block, EventColumns(trace, self._labels, arguments=arguments, **columns)


def _scan(trace: Trace, notes: list[str]) -> EventColumns | None:
    """Read a file; None where it has no events."""
    pieces: dict[str, list[Integers]] = {name: [] for name in SCANNED}
    arguments = TraceArguments(trace)
    scanner = new_scanner()
    blocks = TraceBlocks(scanner, trace)
    for block in blocks:
        if block.rows:
            # Copies: each block holds all of its lines.
            for name in SCANNED:
                pieces[name].append(_narrowed(name, np.array(getattr(block, name))))
            arguments.add(block, blocks)
    notes += blocks.notes
    if not arguments.rows:
        return None
    # The pieces of a column go before those of the next are put together.
    columns = {name: _whole(pieces.pop(name)) for name in SCANNED}
    columns["ph"] = LETTERS[columns["ph"]]
    labels = tuple(Label(cat, name) for cat, name in scanner.labels(0))
    return EventColumns(trace, labels, arguments=arguments, **columns)


def _narrowed(name: str, values: Integers) -> Integers:
    """Return a column of a block in narrower whole numbers, where these hold it."""
    for kind in NARROWER.get(name, ()):
        if np.iinfo(kind).min <= values.min() and values.max() <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def _whole(pieces: list[Integers]) -> Integers:
    """Return the pieces of a column as one; a value that all rows have is there once."""
    first = pieces[0][0]
    if all((piece == first).all() for piece in pieces):
        return np.broadcast_to(first, (sum(map(len, pieces)),))
    return np.concatenate(pieces)
