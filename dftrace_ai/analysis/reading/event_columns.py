"""The events of one trace file as columns, with categories and names as numbers; needs NumPy."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson

from dftrace_ai.analysis.reading.reader import LongLine, Start
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.vocabulary import NUMBERED_PHASES
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock, EventScanner
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_set import TraceSet
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["EventColumns", "Integers", "Label", "event_columns"]

Integers: TypeAlias = "NDArray[Any]"
"""A column of whole numbers."""

NEEDED: Final = ("file", "ph", "cat", "name", "id", "pid", "tid", "start_ns", "dur_ns", "args")

# Of all names and categories of a file; who makes a name for every step may make millions.
MOST_LABEL_BYTES: Final = 1024 * 1024 * 1024


# By the letter of a line: dftracer's numbers may stand there as texts, too. 0 is no single letter.
LETTERS: Final = np.arange(256, dtype=np.uint8)
LETTERS[0] = ord("?")
for _number, _letter in NUMBERED_PHASES.items():
    LETTERS[ord(str(_number))] = ord(_letter)

# The year 2100. Times since 1970 in nanoseconds have to fit into 63 bits.
LATEST_BASE_US: Final = 4_102_444_800_000_000

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
        texts: the arguments of all rows as JSON, one behind the other.
        ends: where those of each row end, in bytes.

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
    texts: bytes
    ends: Integers

    def __len__(self) -> int:
        return len(self.ph)

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self.trace}>"

    def args(self, row: int) -> JsonObject:
        """Return the arguments of an event, decoded now; empty where it has none.

        Args:
            row: number of the row, from 0.
        """
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
        TraceError: a file cannot be read any more.
        DftraceError: the native reader was not built, and DuckDB is not installed.

    Example::

        traces = open_traces(["out/"])
        print(sum(len(columns) for columns in event_columns(traces)), *traces.notes)
    """
    try:
        from dftrace_ai import _reader
    except ImportError:
        yield from _by_batches(traces)
        return
    notes: list[str] = []
    traces.notes = ()
    for trace in traces:
        scanned = _scan(_reader.EventScanner(MOST_LABEL_BYTES), trace)
        notes += scanned.notes
        if len(scanned.ends):
            labels = tuple(Label(cat, name) for cat, name in scanned.labels)
            yield EventColumns(
                trace, labels, texts=scanned.texts, ends=scanned.ends, **scanned.columns
            )
    traces.notes = tuple(notes)


def _by_batches(traces: TraceSet) -> Iterator[EventColumns]:
    current: _Collected | None = None
    for batch in traces.batches(NEEDED):
        number = int(batch["file"][0])
        if current is None or number != current.file:
            if current is not None:
                yield current.columns(traces.files[current.file])
            current = _Collected(number)
        current.add(batch)
    if current is not None:
        yield current.columns(traces.files[current.file])


class _Collected:
    """The batches of one file so far."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._codes: dict[Label, int] = {}
        self._pieces: dict[str, list[Integers]] = {}
        self._texts = bytearray()

    def add(self, batch: dict[str, Integers]) -> None:
        codes = self._codes
        names = zip(batch["cat"].tolist(), batch["name"].tolist(), strict=True)
        label = [codes.setdefault(Label(cat, name), len(codes)) for cat, name in names]
        ph = [_phase(text) for text in batch["ph"].tolist()]
        ends = []
        for text in batch["args"].tolist():
            self._texts += text.encode("utf-8", "surrogatepass")
            ends.append(len(self._texts))
        made: dict[str, Integers] = {
            "ph": np.array(ph, np.uint8),
            "label": np.array(label, np.int32),
            "ends": np.array(ends, np.int64),
        }
        plain: dict[str, Integers] = {
            name: batch[name] for name in ("id", "pid", "tid", "start_ns", "dur_ns")
        }
        for name, values in {**made, **plain}.items():
            self._pieces.setdefault(name, []).append(values)

    def columns(self, trace: Trace) -> EventColumns:
        whole = {name: np.concatenate(pieces) for name, pieces in self._pieces.items()}
        return EventColumns(trace, tuple(self._codes), texts=bytes(self._texts), **whole)


def _phase(text: str) -> int:
    number = ord(text) if len(text) == 1 and text.isascii() else 0
    return int(LETTERS[number])


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
    texts: bytes = b""
    ends: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(0, np.int64))
    notes: list[str] = field(default_factory=list)


def _scan(scanner: EventScanner, trace: Trace) -> _Scanned:
    """Read a file.

    Args:
        scanner: a new one.
        trace: the file.

    Raises:
        TraceError: it cannot be read, or its names need too much memory.
    """
    pieces: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in SCANNED}
    texts = bytearray()
    ends: list[np.ndarray[Any, Any]] = []
    reading = _Blocks(scanner, trace)
    try:
        for block in reading:
            for name in SCANNED:
                # A copy: each block holds all of its lines.
                pieces[name].append(np.array(getattr(block, name)))
            _keep_arguments(block, texts, ends)
    except (OverflowError, MemoryError) as error:
        raise TraceError(f"{trace}: its names need too much memory") from error
    scanned = _Scanned(scanner.labels(0), notes=reading.notes)
    if ends:
        scanned.columns = {name: np.concatenate(found) for name, found in pieces.items()}
        scanned.columns["ph"] = LETTERS[scanned.columns["ph"]]
        scanned.texts, scanned.ends = bytes(texts), np.concatenate(ends)
    return scanned


def _keep_arguments(block: EventBlock, texts: bytearray, ends: list[np.ndarray[Any, Any]]) -> None:
    at, sizes = np.array(block.args_at, np.int64), np.array(block.args_bytes, np.int64)
    some = at > 0
    # With the braces, which stand around what the block has of them.
    begins, stops = at[some] - 1, at[some] + sizes[some] + 1
    text = block.text
    before = len(texts)
    texts += b"".join(
        [text[begin:stop] for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True)]
    )
    ends.append(before + np.cumsum(np.where(some, sizes + 2, 0)))


class _Blocks:
    """Iterates over the blocks of a file; then tells what was not read.

    Args:
        scanner: what reads them.
        trace: the file.
    """

    def __init__(self, scanner: EventScanner, trace: Trace) -> None:
        self.notes: list[str] = []
        self._scanner = scanner
        self._trace = trace
        self._lines = self._plain_bytes = 0
        base_us = (trace.header and trace.header.time_base_us) or 0
        self._base_ns = min(base_us, LATEST_BASE_US) * 1000

    def __iter__(self) -> Iterator[EventBlock]:
        trace = self._trace
        place = 0
        try:
            with open_regular(trace.path) as raw:
                end = os.fstat(raw.fileno()).st_size
                codec = trace.file.codec
                while codec != "plain" and place < end:
                    found = self._scanner.read_block(raw.fileno(), codec, place, end, self._base_ns)
                    if found is None:
                        break
                    block, packed_bytes = found
                    place += packed_bytes
                    self._lines += block.lines
                    self._plain_bytes += len(block.text)
                    yield block
        except OSError as error:
            raise TraceError(f"{trace}: cannot be read: {error.strerror}") from error
        yield from self._rest(place, end)

    def _rest(self, place: int, end: int) -> Iterator[EventBlock]:
        """What is torn, huge or not compressed."""
        if place == end and place:
            return
        reader = self._trace.reader()
        long_lines = 0
        for text in reader.texts(Start(place, self._plain_bytes, self._lines), end):
            if isinstance(text, LongLine):
                long_lines += 1
            else:
                whole = text if text.endswith(b"\n") else text + b"\n"
                yield self._scanner.scan(whole, self._base_ns)
        if reader.tear:
            self.notes.append(f"{self._trace}: torn: {reader.tear}; what comes before it is read")
        if long_lines:
            self.notes.append(f"{counted(long_lines, 'line')} too long to be read")
