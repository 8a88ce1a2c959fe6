"""The events of one trace file as columns, with categories and names as numbers; needs NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_set import TraceSet
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["EventColumns", "Integers", "Label", "event_columns"]

Integers: TypeAlias = "NDArray[Any]"
"""A column of whole numbers."""

NEEDED: Final = ("file", "ph", "cat", "name", "id", "pid", "tid", "start_ns", "dur_ns", "args")

# dftracer's C++ readers number the phases.
NUMBERED_PHASES: Final = {"1": "X", "2": "C", "3": "i", "4": "M"}
NO_PHASE: Final = ord("?")


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
        DftraceError: DuckDB is not installed.

    Example::

        traces = open_traces(["out/"])
        print(sum(len(columns) for columns in event_columns(traces)), *traces.notes)
    """
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
    letter = NUMBERED_PHASES.get(text, text)
    return ord(letter) if len(letter) == 1 and letter.isascii() else NO_PHASE
