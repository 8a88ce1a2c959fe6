"""The events of one trace file as columns, with categories and names as numbers; needs NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson

from dftrace_ai.analysis.reading.scanning.blocks import (
    LETTERS,
    TraceBlocks,
    argument_places,
    arguments_of,
    new_scanner,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading.scanning.plain_scanner import PlainBlock
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_set import TraceSet
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = [
    "BlockColumns",
    "EventColumns",
    "Integers",
    "Label",
    "columns_by_block",
    "event_columns",
]

Integers: TypeAlias = "NDArray[Any]"
"""A column of whole numbers."""

SCANNED: Final = ("ph", "label", "id", "pid", "tid", "start_ns", "dur_ns")


class Label(NamedTuple):
    """What an event is called."""

    cat: str
    name: str


@dataclass(frozen=True, repr=False)
class EventColumns:
    """The events of a trace, one row each, in no order.

    Attributes:
        trace: the file.
        labels: category and name of each code.
        ph: phase, the number of its letter: ``ord("X")``.
        label: code of category and name.
        id: number of the event in its process; 0 where there is none.
        pid: process.
        tid: thread or lane.
        start_ns: start, nanoseconds since 1970; -1 for a line without a time.
        dur_ns: end minus start, nanoseconds; -1 for all but finished spans.
        texts: holds the arguments of all rows as JSON.
        ends: where those of each row end, in bytes.
        begins: where they begin; None where they follow each other.

    Example::

        for columns in event_columns(open_traces(["out/"])):
            spans = columns.ph == ord("X")
            print(columns.trace, columns.dur_ns[spans].sum())
    """

    trace: Trace
    labels: tuple[Label, ...]
    ph: Integers
    label: Integers
    id: Integers
    pid: Integers
    tid: Integers
    start_ns: Integers
    dur_ns: Integers
    texts: bytes | memoryview
    ends: Integers
    begins: Integers | None = None

    def __len__(self) -> int:
        return len(self.ph)

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self.trace}>"

    def args(self, row: int) -> JsonObject:
        """Return the arguments of an event, decoded now; empty where it has none.

        Args:
            row: number of the row, from 0.
        """
        if self.begins is not None:
            begin = int(self.begins[row])
        else:
            begin = int(self.ends[row - 1]) if row else 0
        text = self.texts[begin : int(self.ends[row])]
        if not text:
            return {}
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return {}  # numbers beyond what JSON's readers take
        return value if isinstance(value, dict) else {}


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
        scanned = _scan(trace)
        notes += scanned.notes
        if len(scanned.ends):
            labels = tuple(Label(cat, name) for cat, name in scanned.labels)
            yield EventColumns(
                trace, labels, texts=scanned.texts, ends=scanned.ends, **scanned.columns
            )
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
            begins, ends = argument_places(block)
            yield (
                block,
                EventColumns(
                    trace, self._labels, texts=block.text, ends=ends, begins=begins, **columns
                ),
            )


@dataclass
class _Scanned:
    """What is read of a file.

    Attributes:
        labels: category and name of each code.
        columns: those of `EventColumns`, by name.
        texts: the arguments of all rows as JSON, one behind the other.
        ends: where those of each row end, in bytes.
        notes: what could not be read, a line each.
    """

    labels: list[tuple[str, str]]
    columns: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    texts: bytes | memoryview = b""
    ends: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(0, np.int64))
    notes: list[str] = field(default_factory=list)


def _scan(trace: Trace) -> _Scanned:
    pieces: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in SCANNED}
    texts = bytearray()
    sizes: list[np.ndarray[Any, Any]] = []
    scanner = new_scanner()
    blocks = TraceBlocks(scanner, trace)
    for block in blocks:
        for name in SCANNED:
            # A copy: each block holds all of its lines.
            pieces[name].append(np.array(getattr(block, name)))
        slices, lengths = arguments_of(block)
        texts += b"".join(slices)
        sizes.append(lengths)
    scanned = _Scanned(scanner.labels(0), notes=blocks.notes)
    if sizes:
        # The pieces of a column go before those of the next are put together.
        scanned.columns = {name: np.concatenate(pieces.pop(name)) for name in SCANNED}
        scanned.columns["ph"] = LETTERS[scanned.columns["ph"]]
        scanned.texts, scanned.ends = memoryview(texts), np.cumsum(np.concatenate(sizes))
    return scanned
