"""The columns of a text in Python: for machines on which the native reader was not built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dftrace_ai.analysis.reading.reader import FRAMING
from dftrace_ai.analysis.reading.scanning.plain_lines import (
    arguments_text,
    event_of,
    length_ns,
    moment_ns,
    whole,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["PlainBlock", "PlainScanner"]

# What `p_idx` is where there is none.
NO_PARENT: Final = 2**64 - 1

KINDS: Final = {
    "ph": np.uint8,
    "label": np.uint32,
    "id": np.uint64,
    "parent": np.uint64,
    "pid": np.int64,
    "tid": np.int64,
    "start_ns": np.int64,
    "dur_ns": np.int64,
    "args_at": np.uint32,
    "args_bytes": np.uint32,
}


class PlainBlock:
    """The events of a text as columns; members as those of the native `EventBlock`."""

    def __init__(self, lines: int, unreadable: int, rows: list[tuple[int, ...]]) -> None:
        self.lines = lines
        self.unreadable = unreadable
        self.rows = len(rows)
        self.phases: dict[int, str] = {}
        self.text = memoryview(b"")
        columns = zip(*rows, strict=True) if rows else [()] * len(KINDS)
        made: dict[str, NDArray[Any]] = {
            name: np.array(values, kind)
            for (name, kind), values in zip(KINDS.items(), columns, strict=True)
        }
        self.ph, self.label, self.id, self.parent = (
            made[name] for name in ("ph", "label", "id", "parent")
        )
        self.pid, self.tid, self.start_ns, self.dur_ns = (
            made[name] for name in ("pid", "tid", "start_ns", "dur_ns")
        )
        self.args_at, self.args_bytes = made["args_at"], made["args_bytes"]


class PlainScanner:
    """`EventScanner` in Python, some thirty times slower, with the same results.

    Args:
        most_bytes: of all categories and names.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes
        self._labels: dict[tuple[str, str], int] = {}

    def labels(self, first: int, /) -> list[tuple[str, str]]:
        """Return categories and names by number, from one on."""
        return list(self._labels)[first:]

    def read_block(
        self, descriptor: int, codec: str, start: int, end: int, base_ns: int = 0, /
    ) -> None:
        """Read nothing: all is left to `scan`."""
        return

    def scan(self, text: bytes, base_ns: int = 0, /) -> PlainBlock:
        """Return the events of lines, each with its line break.

        Raises:
            OverflowError: there are more names than there is room for.
        """
        rows: list[tuple[int, ...]] = []
        phases: dict[int, str] = {}
        args = bytearray()
        lines = text.split(b"\n")[:-1]
        unreadable = 0
        for line in lines:
            stripped = line.strip(b" \t\r")
            if stripped in FRAMING:
                continue
            event = event_of(stripped.removesuffix(b",").strip(b" \t\r"))
            if event is None:
                unreadable += 1
                continue
            ph = event["ph"]
            single = len(ph) == 1 and ph.isascii() and ph != "\0"
            if not single:
                phases[len(rows)] = ph
            rows.append((ord(ph) if single else 0, *self._row(event, stripped, base_ns, args)))
        block = PlainBlock(len(lines), unreadable, rows)
        block.phases, block.text = phases, memoryview(bytes(args))
        return block

    def _row(
        self, event: JsonObject, line: bytes, base_ns: int, args: bytearray
    ) -> tuple[int, ...]:
        start, duration = moment_ns(event.get("ts")), length_ns(event.get("dur"))
        begin = -1 if start is None else start + base_ns
        given = event.get("args")
        parent, at, size = NO_PARENT, 0, 0
        if isinstance(given, dict):
            parent = whole(given.get("p_idx"), 0, 2**64, NO_PARENT)
            written = arguments_text(line.decode()).encode()
            at, size = len(args) + 1, len(written) - 2
            args += written
        return (
            self._label(event.get("cat"), event["name"]),
            whole(event.get("id"), 0, 2**64),
            parent,
            whole(event.get("pid")),
            whole(event.get("tid")),
            begin if -(2**63) <= begin < 2**63 else -1,
            max(-1, duration) if duration is not None and event["ph"] == "X" else -1,
            at,
            size,
        )

    def _label(self, cat: Any, name: str) -> int:
        key = (cat if isinstance(cat, str) else "", name)
        number = self._labels.get(key)
        if number is None:
            self._left_bytes -= sum(len(text.encode()) for text in key) + 64
            if self._left_bytes < 0:
                raise OverflowError("more names than there is room for")
            number = self._labels[key] = len(self._labels)
        return number
