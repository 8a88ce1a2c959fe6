"""Several trace files as one stream that a viewer opens as one trace."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import orjson

from dftrace_ai.analysis.overlapping import OverlapTracks
from dftrace_ai.analysis.process_order import processes_in_order
from dftrace_ai.analysis.reading.given_lines import lines_near
from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.reading.reader import FRAMING, LongLine
from dftrace_ai.analysis.reading.trace_file import tear_told
from dftrace_ai.analysis.track_order import NamedTracks
from dftrace_ai.trace_format.names_and_phases import NUMBERED_PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.process_order import ShownProcess
    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["MergedTrace", "shown_base_us"]

CHUNK_BYTES = 512 * 1024

# Process ids beyond the greatest that Linux gives (2^22), for those that hosts have in common.
FIRST_SPARE_PID = 1 << 22

# Beyond it Perfetto knows no process.
LARGEST_PID = 1 << 31

# Arrows of a profile have small numbers, those of another one the same.
ARROWS = frozenset("stf")
ARROWS_OF_FILE = 1 << 32

LETTER_OF = {str(number): letter for number, letter in NUMBERED_PHASES.items()}

TS = re.compile(rb'"ts":(\d{1,20})(?!\d)')


@dataclass(frozen=True)
class _Change:
    """What the lines of one file need so that they fit those of the others."""

    shift_us: int
    pid: int
    new_pid: int
    profile: bool = False
    """It is one of torch.profiler, which holds several processes."""


class MergedTrace:
    """Iterates over the bytes of one trace made of many files: ``[``, then their lines.

    Files whose time bases differ are brought to one; a process id that two processes have in
    common, as on two hosts or in two containers, is renumbered, since a viewer would lay both on
    one track, and so are GPUs that several files of torch.profiler have in common. Lines that hold
    no event are left out, for one of them makes Perfetto refuse all; dftracer's numbers for phases
    become the letters that it knows. Ranks are shown in their order, and below each the processes
    that it has started; so are the tracks of a process, unless a file orders them itself. Spans of
    others that overlap others of their thread in part get tracks of their own: Perfetto would drop
    them.

    Args:
        files: the files.
        window: only what touches it, and the lines without a time; None for everything.
        tracks: further lines, by the trace whose process and time they are of.
        counters: what counters are shown as that are not to have their own names.

    Attributes:
        files: the files, in the order of the lines.
        notes: after the last byte, what was left out or changed, one line each.

    Example::

        merged = MergedTrace(open_traces(["out/"]))
        Path("all.pfw").write_bytes(b"".join(merged))
    """

    def __init__(
        self,
        files: Iterable[Trace],
        window: TimeWindow | None = None,
        tracks: Mapping[Path, Sequence[bytes]] | None = None,
        counters: Mapping[str, str] | None = None,
    ) -> None:
        self.files = list(files)
        self.window = window
        self.tracks = tracks or {}
        self.counters = counters or {}
        self.notes: list[str] = []
        self._owners = Owners(self.files)
        self._within = _Within(window) if window else None
        self._numbers = _ProcessNumbers()
        self._named = NamedTracks()

    def __iter__(self) -> Iterator[bytes]:
        self.notes = []
        self._within = _Within(self.window) if self.window else None
        self._numbers = _ProcessNumbers()
        self._named = NamedTracks()
        changes = self._changes()
        chunk: list[bytes] = [b"["]
        size = 1
        parts = [self._lines(*each) for each in enumerate(changes)]
        for lines in (*parts, _order(self._in_order(changes)), self._named.order()):
            for line in lines:
                chunk.append(line)
                size += len(line) + 1
                if size >= CHUNK_BYTES:
                    yield b"\n".join(chunk) + b"\n"
                    chunk, size = [], 0
        if chunk:
            yield b"\n".join(chunk) + b"\n"
        if self._within and not self._within.count:
            self.notes.append(self._within.told())

    def processes(self) -> list[ShownProcess]:
        """Return the processes as they are called and numbered, in their order.

        Empty where files say nothing of their processes, or hold several.
        """
        self._numbers = _ProcessNumbers()
        is_whole = all(file.header and file.header.run for file in self.files)
        return self._in_order(self._changes()) if is_whole else []

    def _in_order(self, changes: Sequence[_Change]) -> list[ShownProcess]:
        shown: dict[int, int] = {}
        for file, change in zip(self.files, changes, strict=True):
            shown.setdefault(self._owners.of(file).number, change.new_pid)
        return processes_in_order(self._owners, shown)

    def _lines(self, number: int, change: _Change) -> Iterator[bytes]:
        file = self.files[number]
        reader = lines_near(file, self.window, change.shift_us)
        broken = 0
        loads = orjson.loads
        within = self._within
        overlaps = OverlapTracks(file) if _is_of_others(file) else None
        names = map(orjson.dumps, overlaps.names()) if overlaps else ()
        altered = change.shift_us != 0 or change.new_pid != change.pid
        for line in chain(names, reader, self.tracks.get(file.path, ())):
            text = line.strip()
            if text in FRAMING:
                continue
            text = text.removesuffix(b",")
            try:
                event = None if isinstance(line, LongLine) else loads(text)
            except orjson.JSONDecodeError:
                event = None
            ph = event.get("ph") if isinstance(event, dict) else None
            if isinstance(event, dict) and (letter := LETTER_OF.get(str(ph))):
                ph = event["ph"] = letter
                text = orjson.dumps(event)
            # Perfetto drops all that stands behind a phase that is no text.
            if not isinstance(event, dict) or not isinstance(ph, str):
                broken += 1
                continue
            if within is None or within.has(event, change.shift_us):
                if overlaps and (tid := overlaps.tid_of(event)) != event.get("tid"):
                    event["tid"] = tid
                    text = orjson.dumps(event)
                if change.profile:
                    text = self._moved(text, event, number)
                if ph == "C" and self.counters:
                    text = self._renamed(text, event.get("name"))
                if altered:
                    text = _altered(text, change)
                if ph == "M":
                    self._named.add(text)
                yield text
        if within:
            within.left_out(reader.left_out_us, change.shift_us)
        if broken:
            self.notes.append(f"{file}: lines without an event left out: {broken}")
        if reader.tear:
            self.notes.append(f"{file}: {tear_told(reader.tear, 'shown')}")
        self.notes += file.file.notes

    def _renamed(self, text: bytes, name: object) -> bytes:
        shown = self.counters.get(name) if isinstance(name, str) else None
        if shown is None:
            return text
        # The name stands before all that could hold the same text.
        return text.replace(b'"name":' + orjson.dumps(name), b'"name":' + orjson.dumps(shown), 1)

    def _moved(self, text: bytes, event: JsonObject, number: int) -> bytes:
        """Return a line of a profile; its process and arrows are told from those of others."""
        pid, arrow = event.get("pid"), event.get("id")
        moved = {}
        if isinstance(pid, int):
            new_pid = self._numbers.of(pid, self._owners.of(self.files[number]).number)
            if new_pid != pid:
                moved = {"pid": new_pid, "tid": new_pid if event.get("tid") == pid else None}
        if number and isinstance(arrow, int) and event.get("ph") in ARROWS:
            moved["id"] = arrow + number * ARROWS_OF_FILE
        known = {name: value for name, value in moved.items() if value is not None}
        return orjson.dumps({**event, **known}) if known else text

    def _changes(self) -> list[_Change]:
        headers = [file.header for file in self.files]
        target = shown_base_us(self.files)
        changes: list[_Change] = []
        for file, header in zip(self.files, headers, strict=True):
            if file.file.copy and file.file.copy.profile:
                base_us = (header and header.time_base_us) or target
                changes.append(_Change(base_us - target, 0, 0, profile=True))
                continue
            if header is None or header.pid is None:
                changes.append(_Change(0, 0, 0))
                continue
            new_pid = self._numbers.of(header.pid, self._owners.of(file).number)
            if new_pid != header.pid:
                self.notes.append(
                    f"{file}: pid {header.pid} of host {str(header.host)[:256]} is shown as "
                    f"{new_pid}: another process has the same"
                )
            changes.append(_Change((header.time_base_us or 0) - target, header.pid, new_pid))
        return changes


def _is_of_others(file: Trace) -> bool:
    return file.header is None or file.header.run is None


def shown_base_us(files: Iterable[Trace]) -> int:
    """Return the time since which the merged trace of files counts, microseconds since 1970.

    Whole microseconds since 1970 (base 0) come down to the base of the others, which would
    lose their nanoseconds on the way up.
    """
    bases = (file.header.time_base_us for file in files if file.header)
    return min((base for base in bases if base), default=0)


class _ProcessNumbers:
    """Gives every process a number that no other has."""

    def __init__(self) -> None:
        self._owners: dict[int, object] = {}
        self._given: dict[tuple[int, object], int] = {}
        self._spare = FIRST_SPARE_PID

    def of(self, pid: int, owner: object) -> int:
        """Return the number of a process.

        Args:
            pid: that it has.
            owner: whose the lines are.
        """
        given = self._given.get((pid, owner))
        if given is None:
            given = pid if 0 <= pid < LARGEST_PID else FIRST_SPARE_PID
            while self._owners.setdefault(given, (pid, owner)) != (pid, owner):
                self._spare += 1
                given = self._spare
            self._given[pid, owner] = given
        return given


def _order(processes: Sequence[ShownProcess]) -> Iterator[bytes]:
    """Yield lines that bring processes into their order, in viewers that go by them.

    Perfetto does from v53 on; before, it puts those with more spans first.
    """
    if len(processes) < 2:
        return
    for place, (pid, name) in enumerate(processes, 1):
        line = {"cat": "dftrace", "pid": pid, "tid": pid, "ph": "M"}
        yield orjson.dumps({"name": "process_name", **line, "args": {"name": name}})
        yield orjson.dumps({"name": "process_sort_index", **line, "args": {"sort_index": place}})


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

    def left_out(self, range_us: tuple[float, float] | None, shift_us: int) -> None:
        """Take in from when to when events were that nobody had to look at."""
        if range_us:
            self.first_us = min(self.first_us, range_us[0] + shift_us)
            self.last_us = max(self.last_us, range_us[1] + shift_us)

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
