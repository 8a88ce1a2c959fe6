"""The lines of one file as they stand in a merged trace."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from dftrace_ai._reader import Rewriting
from dftrace_ai.analysis.merging.overlap_tracks import ARROWS, OverlapTracks
from dftrace_ai.analysis.reading.given_lines import GivenLines
from dftrace_ai.analysis.reading.reader import FRAMING, LongLine
from dftrace_ai.analysis.reading.stack_lines import ShownStacks, is_of_stacks
from dftrace_ai.analysis.reading.trace_file import tear_told
from dftrace_ai.trace_format.header_and_footer import INDEX, MERGED_LINE, SAMPLE, is_own
from dftrace_ai.trace_format.json_types import is_object
from dftrace_ai.trace_format.names_and_phases import NUMBERED_PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dftrace_ai.analysis.merging.shown_times import Piece
    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import EventLine

LETTER_OF: Final = {str(number): letter for number, letter in NUMBERED_PHASES.items()}

TS: Final = re.compile(rb'"ts":(\d{1,16})(?:\.(\d{1,9}))?(?![\d.eE])')
DUR: Final = re.compile(rb',"dur":(\d{1,16})(?:\.(\d{1,9}))?(?![\d.eE])')

# Later times are moved by nobody: nothing was recorded there yet.
LATEST_US: Final = 2**51

# Arrows of a profile have small numbers, those of another one the same.
ARROWS_OF_FILE: Final = 1 << 32

STEPS_AND_CALLS: Final = [("comm", ""), ("pipeline", "step")]
"""Categories and names of the spans that are kept where only these are asked for."""


class Change(NamedTuple):
    """What the lines of one file need so that they fit those of the others."""

    pieces: list[Piece]  # of its clock
    pid: int = 0
    new_pid: int = 0
    profile: bool = False  # it is one of torch.profiler, which holds several processes


class Shown(NamedTuple):
    """What of the lines is shown, and how it is written."""

    window: TimeWindow | None = None
    counters: Mapping[str, str] = {}
    packed: bool = False


class FileLines:
    """Gives the lines of one file in pieces to be written, and tells afterwards what is said here.

    Attributes:
        lines: how many there were.
        notes: what could not be read, a line each.
        named: lines that name tracks or order them.
        within: how many events were in the window, and from when to when all of them are.
    """

    def __init__(
        self,
        file: Trace,
        change: Change,
        shown: Shown,
        *,
        further: Iterable[bytes] = (),
        steps_and_calls: bool = False,
        renumbered: Callable[[int], int] | None = None,
        number: int = 0,
    ) -> None:
        self.lines = 0
        self.notes: list[str] = []
        self.named: list[bytes] = []
        self._file = file
        self._change = change
        self._further = further
        self._counters = shown.counters
        self._kept = frozenset(STEPS_AND_CALLS) if steps_and_calls else None
        self._arrows = _category_of_arrows() if steps_and_calls else ""
        self._renumbered = renumbered
        self._number = number
        others = file.header is None or file.header.run is None
        self._overlaps = OverlapTracks(file) if others else None
        window = shown.window
        # One for each of a thousand files would be gigabytes: it is there while they are read.
        self._native: Rewriting
        self._begun = partial(
            Rewriting,
            change.pid,
            change.new_pid,
            change.pieces,
            window and (_ns(window.begin_us), _ns(window.end_us)),
            STEPS_AND_CALLS if steps_and_calls else None,
            others or change.profile,
            bool(shown.counters),
            shown.packed,
        )
        self._whole_us = _whole_us(change.pieces)
        self.within = Within(window) if window else None
        self._stacks = ShownStacks(window, lambda us: int(self._shown_us(us)))
        self._broken = 0

    def pieces(self, *, first: bool, marked: bool = False) -> Iterator[bytes]:
        """Yield what is to be written, the `first` with a bracket, and, if `marked`, a head.

        Raises:
            TraceError: the operating system refuses to read the file.
        """
        native = self._native = self._begun()
        if first:
            native.put(b"[", False)
        if first and marked:
            pid = self._change.new_pid
            native.put(MERGED_LINE + b',"pid":%d,"tid":%d,"args":{}}' % (pid, pid), False)
            self.lines += 1
        if self._overlaps:
            self._put(map(orjson.dumps, self._overlaps.names()))
        reader = GivenLines(self._file.file, native)
        for long_line in reader.blocks():
            if long_line is not None:
                self._broken += 1
            else:
                self._put(line for _, _, line in reader.given())
            if piece := native.take(False):
                yield piece
        self._put(self._further)
        if piece := native.take(True):
            yield piece
        self.lines += native.written
        if self.within:
            self.within.add(native.written, native.reach)
        del self._native, native
        if broken := self._broken + self._stacks.odd:
            self.notes.append(f"{self._file}: lines without an event left out: {broken}")
        if reader.tear:
            self.notes.append(f"{self._file}: {tear_told(reader.tear, 'shown')}")
        self.notes += self._file.file.notes

    def _put(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            for text, timed in self._looked_at(line):
                self._native.put(text, timed)
                self.lines += 1

    def _looked_at(self, line: bytes) -> Iterator[tuple[bytes, bool]]:
        text = line.strip()
        if text in FRAMING:
            return
        found = None if isinstance(line, LongLine) else _event_in(text.removesuffix(b","))
        if found is None:
            self._broken += 1
            return
        text, event = found
        ph = event["ph"]
        # What an index says is of another file; and lines that nobody asked for.
        if is_own(event, INDEX) or not self._is_kept(event):
            return
        if ph == SAMPLE.ph and is_of_stacks(event):
            yield from ((self._placed(told), True) for told in self._stacks.lines(text, event))
            return
        if self.within and not self.within.has(event, self._shown_us):
            return
        if self._overlaps and (tid := self._overlaps.tid_of(event)) != event.get("tid"):
            event["tid"] = tid
            text = orjson.dumps(event)
        if self._change.profile:
            text = self._told_apart(text, event)
        if ph == "C" and self._counters:
            text = self._renamed(text, event.get("name"))
        text = self._placed(text)
        if ph == "M" and b"thread_" in text:
            self.named.append(text)
        yield text, ph != "M"

    def _is_kept(self, event: EventLine) -> bool:
        if self._kept is None or event["ph"] == "M":
            return True
        cat, name = event.get("cat"), event.get("name")
        return cat == self._arrows or (
            event["ph"] in "XB" and bool({(cat, ""), (cat, name)} & self._kept)
        )

    def _placed(self, line: bytes) -> bytes:
        args = line.find(b'"args":')
        if 0 <= args < max(line.rfind(b'"pid":'), line.rfind(b'"tid":'), line.rfind(b'"ts":')):
            line = _args_last(line)
        # Both members stand before args, and quotes in strings are escaped: what is found first is
        # the event's own.
        pid, new_pid = self._change.pid, self._change.new_pid
        old, new = b"%d" % pid, b"%d" % new_pid
        if new_pid != pid and b'"pid":' + old + b"," in line:
            line = line.replace(b'"pid":' + old + b",", b'"pid":' + new + b",", 1)
            # The main thread is known by a thread id equal to the process id.
            line = line.replace(b'"tid":' + old + b",", b'"tid":' + new + b",", 1)
        if not self._change.pieces:
            return line
        time = TS.search(line)
        args = line.find(b'"args":')
        if time is None or 0 <= args < time.start() or int(time[1]) >= LATEST_US:
            return line
        if self._whole_us is not None:
            ts = max(0, int(time[1]) + self._whole_us)
            return b'%s"ts":%d%s' % (line[: time.start()], ts, line[time.end(1) :])
        start_ns = _ns_of(time)
        begin_ns = self._native.shown(start_ns)
        behind = line[time.end() :]
        dur = None if self._native.keeps_durations else DUR.match(behind)
        if dur is not None and int(dur[1]) < LATEST_US:
            end_ns = self._native.shown_end(start_ns, _ns_of(dur))
            behind = b',"dur":%s%s' % (micros(end_ns - begin_ns), behind[dur.end() :])
        return b'%s"ts":%s%s' % (line[: time.start()], micros(begin_ns), behind)

    def _shown_us(self, us: float) -> float:
        if not self._change.pieces:
            return max(0, us)
        if self._whole_us is not None or not abs(us) < LATEST_US:
            return max(0, us + (self._whole_us or 0))
        return self._native.shown(round(us * 1000)) / 1000

    def _renamed(self, text: bytes, name: object) -> bytes:
        shown = self._counters.get(name) if isinstance(name, str) else None
        if shown is None:
            return text
        # The name stands before all that could hold the same text.
        old, new = (b'"name":' + orjson.dumps(each) for each in (name, shown))
        return text.replace(old, new, 1)

    def _told_apart(self, text: bytes, event: EventLine) -> bytes:
        pid, arrow = event.get("pid"), event.get("id")
        moved = {}
        if isinstance(pid, int) and self._renumbered:
            new_pid = self._renumbered(pid)
            if new_pid != pid:
                moved = {"pid": new_pid, "tid": new_pid if event.get("tid") == pid else None}
        if self._number and isinstance(arrow, int) and event.get("ph") in ARROWS:
            moved["id"] = arrow + self._number * ARROWS_OF_FILE
        known = {name: value for name, value in moved.items() if value is not None}
        return orjson.dumps({**event, **known}) if known else text


def _category_of_arrows() -> str:
    try:
        from dftrace_ai.analysis.last_to_come import CATEGORY
    except ImportError:
        return ""  # NumPy is not there, and no arrow was drawn
    return CATEGORY


class Within:
    """Tells the events of a window from all others, and counts them."""

    def __init__(self, window: TimeWindow) -> None:
        self.window = window
        self.count = 0
        self.first_us = math.inf
        self.last_us = -math.inf

    def has(self, event: EventLine, shown_us: Callable[[float], float]) -> bool:
        """Return whether an event touches the window; what has no time does."""
        begin_us, length_us = event.get("ts"), event.get("dur", 0)
        if not isinstance(begin_us, int | float) or not isinstance(length_us, int | float):
            return True
        begin_us = shown_us(begin_us)
        end_us = begin_us + length_us
        self.first_us = min(self.first_us, begin_us)
        self.last_us = max(self.last_us, end_us)
        if event.get("ph") == "B":
            end_us = math.inf  # it never ended
        touches = self.window.touches(begin_us, end_us)
        self.count += touches
        return touches

    def add(self, count: int, reach: tuple[int, int] | None) -> None:
        """Take in events that nobody had to look at, as many as are in it, and all of them."""
        self.count += count
        if reach:
            self.first_us = min(self.first_us, reach[0] / 1000)
            self.last_us = max(self.last_us, reach[1] / 1000)

    def join(self, other: Within) -> None:
        """Take in what another has counted."""
        self.count += other.count
        self.first_us = min(self.first_us, other.first_us)
        self.last_us = max(self.last_us, other.last_us)

    def told(self) -> str:
        """Return that nothing is in it, and what there is."""
        if self.first_us > self.last_us:
            return "there is no event at all"
        return (
            f"there is no event from {self.window.begin_us / 1e6:.6f}s to "
            f"{self.window.end_us / 1e6:.6f}s; the trace goes from {self.first_us / 1e6:.6f}s to "
            f"{self.last_us / 1e6:.6f}s"
        )


def _event_in(text: bytes) -> tuple[bytes, EventLine] | None:
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    ph = event.get("ph") if isinstance(event, dict) else None
    if isinstance(event, dict) and (letter := LETTER_OF.get(str(ph))):
        ph = event["ph"] = letter
        text = orjson.dumps(event)
    # Perfetto drops all that stands behind a phase that is no text.
    return (text, event) if is_object(event) and isinstance(ph, str) else None


def _args_last(line: bytes) -> bytes:
    event = orjson.loads(line)
    if [*event][-1] == "args" or "args" not in event:
        return line
    args = event.pop("args")
    return orjson.dumps({**event, "args": args})


def _whole_us(pieces: Sequence[Piece]) -> int | None:
    if len(pieces) != 1 or pieces[0][2] or pieces[0][1] % 1000:
        return None
    return pieces[0][1] // 1000


def _ns(us: float) -> int:
    return round(max(-LATEST_US, min(us, LATEST_US)) * 1000)


def _ns_of(number: re.Match[bytes]) -> int:
    return int(number[1]) * 1000 + round(int((number[2] or b"0").ljust(9, b"0")) / 1e6)


def micros(ns: int) -> bytes:
    """Return a time in microseconds, as the recorder writes it: ``micros(1500) == b"1.500"``."""
    return b"%d.%03d" % divmod(ns, 1000)
