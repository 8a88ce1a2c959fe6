"""Several trace files as one stream that a viewer opens as one trace."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from dftrace_ai.analysis.reading.reader import FRAMING, LongLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["MergedTrace"]

CHUNK_BYTES = 512 * 1024

# Process ids beyond the greatest that Linux gives (2^22), for those that hosts have in common.
FIRST_SPARE_PID = 1 << 22

TS = re.compile(rb'"ts":(\d{1,20})(?!\d)')


@dataclass(frozen=True)
class _Change:
    """What the lines of one file need so that they fit those of the others."""

    shift_us: int
    pid: int
    new_pid: int


class MergedTrace:
    """Iterates over the bytes of one trace made of many files: ``[``, then their lines.

    Files whose time bases differ are brought to one; a process id that two hosts have in
    common is renumbered, since a viewer would lay both processes on one track. Lines
    that hold no event are left out, for one of them makes Perfetto refuse all.

    Args:
        files: the files.
        window: only what touches it, and the lines without a time; None for everything.

    Attributes:
        files: the files, in the order of the lines.
        notes: after the last byte, what was left out or changed, one line each.

    Example::

        merged = MergedTrace(open_traces(["out/"]))
        Path("all.pfw").write_bytes(b"".join(merged))
    """

    def __init__(self, files: Iterable[Trace], window: TimeWindow | None = None) -> None:
        self.files = list(files)
        self.window = window
        self.notes: list[str] = []
        self._within = _Within(window) if window else None

    def __iter__(self) -> Iterator[bytes]:
        self.notes = []
        self._within = _Within(self.window) if self.window else None
        changes = self._changes()
        chunk: list[bytes] = [b"["]
        size = 1
        for file, change in zip(self.files, changes, strict=True):
            for line in self._lines(file, change):
                chunk.append(line)
                size += len(line) + 1
                if size >= CHUNK_BYTES:
                    yield b"\n".join(chunk) + b"\n"
                    chunk, size = [], 0
        if chunk:
            yield b"\n".join(chunk) + b"\n"
        if self._within and not self._within.count:
            self.notes.append(self._within.told())

    def _lines(self, file: Trace, change: _Change) -> Iterator[bytes]:
        reader = file.reader()
        broken = 0
        loads = orjson.loads
        within = self._within
        altered = change.shift_us != 0 or change.new_pid != change.pid
        for _, line in reader.lines():
            text = line.strip()
            if text in FRAMING:
                continue
            text = text.removesuffix(b",")
            try:
                event = None if isinstance(line, LongLine) else loads(text)
            except orjson.JSONDecodeError:
                event = None
            if not isinstance(event, dict):
                broken += 1
            elif within is None or within.has(event, change.shift_us):
                yield _altered(text, change) if altered else text
        if broken:
            self.notes.append(f"{file}: lines without an event left out: {broken}")
        if reader.tear:
            self.notes.append(f"{file}: torn: {reader.tear}; what comes before it is shown")

    def _changes(self) -> list[_Change]:
        headers = [file.header for file in self.files]
        # Whole microseconds since 1970 (base 0) come down to the base of the others, which
        # would lose their nanoseconds on the way up.
        bases = (header.time_base_us for header in headers if header)
        target = min((base for base in bases if base), default=0)
        owners: dict[int, str | None] = {}
        spare = FIRST_SPARE_PID
        changes: list[_Change] = []
        for file, header in zip(self.files, headers, strict=True):
            if header is None or header.pid is None:
                changes.append(_Change(0, 0, 0))
                continue
            new_pid = header.pid
            if owners.setdefault(header.pid, header.hhash) != header.hhash:
                spare += 1
                new_pid = spare
                self.notes.append(
                    f"{file}: pid {header.pid} of host {str(header.host)[:256]} is shown as "
                    f"{new_pid}: another host has the same"
                )
            changes.append(_Change((header.time_base_us or 0) - target, header.pid, new_pid))
        return changes


class _Within:
    """Tells the events of a window from all others."""

    def __init__(self, window: TimeWindow) -> None:
        self.window = window
        self.count = 0
        self.first_us = math.inf
        self.last_us = -math.inf

    def has(self, event: JsonObject, shift_us: int) -> bool:
        begin_us, length_us = event.get("ts"), event.get("dur", 0)
        if not isinstance(begin_us, int | float) or not isinstance(length_us, int | float):
            return True
        begin_us = max(0, begin_us + shift_us)
        end_us = begin_us + length_us
        if event.get("ph") == "B":
            end_us = math.inf  # it never ended
        self.first_us = min(self.first_us, begin_us)
        self.last_us = max(self.last_us, begin_us + length_us)
        touches = self.window.touches(begin_us, end_us)
        self.count += touches
        return touches

    def told(self) -> str:
        if self.first_us > self.last_us:
            return "there is no event at all"
        return (
            f"there is no event from {self.window.begin_us / 1e6:.6f}s to "
            f"{self.window.end_us / 1e6:.6f}s; the trace goes from {self.first_us / 1e6:.6f}s to "
            f"{self.last_us / 1e6:.6f}s"
        )


def _altered(line: bytes, change: _Change) -> bytes:
    """Return the line with its time shifted and its process renumbered.

    Both members stand before args, and quotes inside of strings are escaped, so the first
    match is the event's own.
    """
    if change.new_pid != change.pid:
        old, new = b"%d" % change.pid, b"%d" % change.new_pid
        line = line.replace(b'"pid":' + old + b",", b'"pid":' + new + b",", 1)
        # The main thread is known by a thread id equal to the process id.
        line = line.replace(b'"tid":' + old + b",", b'"tid":' + new + b",", 1)
    if change.shift_us:
        time = TS.search(line)
        args = line.find(b'"args":')
        if time and (args < 0 or time.start() < args):
            ts = max(0, int(time[1]) + change.shift_us)
            line = b'%s"ts":%d%s' % (line[: time.start()], ts, line[time.end() :])
    return line
