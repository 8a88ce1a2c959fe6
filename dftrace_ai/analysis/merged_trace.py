"""Several trace files as one stream that a viewer opens as one trace."""

from __future__ import annotations

import math
import re
import zlib
from array import array
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import orjson

from dftrace_ai.analysis.reading.clocks import on_one_clock
from dftrace_ai.analysis.reading.given_lines import lines_near
from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.reading.reader import FRAMING, LongLine, event_of
from dftrace_ai.analysis.reading.stack_lines import ShownStacks, is_of_stacks
from dftrace_ai.analysis.reading.trace_file import tear_told
from dftrace_ai.analysis.track_order import NamedTracks
from dftrace_ai.trace_format.header_and_footer import SAMPLE
from dftrace_ai.trace_format.json_types import is_object
from dftrace_ai.trace_format.names_and_phases import NUMBERED_PHASES
from dftrace_ai.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.identity import Owner
    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import EventLine

CHUNK_BYTES = 512 * 1024
LEVEL = 6

# Process ids beyond the greatest that Linux gives (2^22), for those that hosts have in common.
FIRST_SPARE_PID = 1 << 22

# Beyond it Perfetto knows no process, and takes a thread, as it does 0, for the main one.
LARGEST = 1 << 31

# Arrows of a profile have small numbers, those of another one the same.
ARROWS = frozenset("stf")
ARROWS_OF_FILE = 1 << 32

LETTER_OF = {str(number): letter for number, letter in NUMBERED_PHASES.items()}

TS = re.compile(rb'"ts":(\d{1,20})(?!\d)')

NAME_LETTERS = 200

# For spans that overlap: where the recorder has its own tracks for them, above every id that Linux
# gives.
FIRST_TID = 0x50000000

OF_THREAD = " · "

LATEST_US = 2.0**52

_Track: TypeAlias = "tuple[int | str, int | str]"


@dataclass(frozen=True)
class _Change:
    """What the lines of one file need so that they fit those of the others."""

    shift_us: int
    pid: int
    new_pid: int
    profile: bool = False
    """It is one of torch.profiler, which holds several processes."""


class MergedTrace:
    """Iterates over the bytes of one trace made of many; then `notes` tells what was changed."""

    # Files whose time bases differ are brought to one; a process id that two processes have in
    # common, as on two hosts or in two containers, is renumbered, since a viewer would lay both on
    # one track, and so are GPUs that several files of torch.profiler have in common. Lines without
    # an event are left out, for one of them makes Perfetto refuse all; dftracer's numbers for
    # phases become the letters that it knows. Ranks are shown in their order, and below each the
    # processes that it has started; so are the tracks of a process, unless a file orders them.

    def __init__(
        self,
        files: Iterable[Trace],
        window: TimeWindow | None = None,
        tracks: Mapping[Path, Sequence[bytes]] | None = None,
        counters: Mapping[str, str] | None = None,
    ) -> None:
        self.files, self._set = on_one_clock(list(files))
        # Only what touches it, and lines without a time; None for everything.
        self.window = window
        # Further lines, by the trace whose process and time they are of.
        self.tracks = tracks or {}
        # What counters are shown as that are not to have their own names.
        self.counters = counters or {}
        self.notes: list[str] = []
        self._owners = Owners(self.files)
        self._within = _Within(window) if window else None
        self._numbers = _ProcessNumbers()
        self._named = NamedTracks()

    def __iter__(self) -> Iterator[bytes]:
        self.notes = [*self._set]
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
        """Return the processes in their order; none where files do not say, or hold several."""
        self._numbers = _ProcessNumbers()
        is_whole = all(file.header and file.header.run for file in self.files)
        return self._in_order(self._changes()) if is_whole else []

    def _in_order(self, changes: Sequence[_Change]) -> list[ShownProcess]:
        shown: dict[int, int] = {}
        for file, change in zip(self.files, changes, strict=True):
            shown.setdefault(self._owners.of(file).number, change.new_pid)
        return _processes_in_order(self._owners, shown)

    def _lines(self, number: int, change: _Change) -> Iterator[bytes]:
        file = self.files[number]
        reader = lines_near(file, self.window, change.shift_us)
        broken = 0
        within = self._within
        stacks = ShownStacks(self.window, change.shift_us)
        overlaps = _OverlapTracks(file) if _is_of_others(file) else None
        names = map(orjson.dumps, overlaps.names()) if overlaps else ()
        altered = change.shift_us != 0 or change.new_pid != change.pid
        for line in chain(names, reader, self.tracks.get(file.path, ())):
            text = line.strip()
            if text in FRAMING:
                continue
            found = None if isinstance(line, LongLine) else _shown(text.removesuffix(b","))
            if found is None:
                broken += 1
                continue
            text, event = found
            ph = event["ph"]
            if ph == SAMPLE.ph and is_of_stacks(event):
                for told in stacks.lines(text, event):
                    yield _altered(told, change) if altered else told
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
        if broken := broken + stacks.odd:
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

    def _moved(self, text: bytes, event: EventLine, number: int) -> bytes:
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


def _shown(text: bytes) -> tuple[bytes, EventLine] | None:
    """Return a line with its event, the phase a letter; None without one."""
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


def _is_of_others(file: Trace) -> bool:
    return file.header is None or file.header.run is None


def shown_base_us(files: Iterable[Trace]) -> int:
    """Return the time since which the merged trace of files counts, microseconds since 1970."""
    # Times that are since 1970 themselves (base 0) come down to the base of the others, which would
    # lose their nanoseconds on the way up.
    bases = (file.header.time_base_us for file in files if file.header)
    return min((base for base in bases if base), default=0)


class _ProcessNumbers:
    """Gives every process a number that no other has."""

    def __init__(self) -> None:
        self._owners: dict[int, object] = {}
        self._given: dict[tuple[int, object], int] = {}
        self._spare = FIRST_SPARE_PID

    def of(self, pid: int, owner: object) -> int:
        """Return the number of a process with this pid, whose the lines are."""
        given = self._given.get((pid, owner))
        if given is None:
            given = pid if 0 <= pid < LARGEST else FIRST_SPARE_PID
            while self._owners.setdefault(given, (pid, owner)) != (pid, owner):
                self._spare += 1
                given = self._spare
            self._given[pid, owner] = given
        return given


def _order(processes: Sequence[ShownProcess]) -> Iterator[bytes]:
    """Yield lines that bring processes into their order, in viewers that go by them."""
    # Perfetto does from v53 on; before, it puts those with more spans first.
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

    def has(self, event: EventLine, shift_us: int) -> bool:
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
    """Return the line with its time shifted and its process renumbered."""
    # Both members stand before args, and quotes inside of strings are escaped, so the first match
    # is the event's own.
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


class ShownProcess(NamedTuple):
    """A process by its pid in the merged trace, and its name there: ``rank 0 · node7``."""

    pid: int
    name: str


def _processes_in_order(owners: Owners, shown: Mapping[int, int]) -> list[ShownProcess]:
    """Return the processes in their natural order; `shown` are their pids by number of owner.

    A rank, the workers that it has started, directly or not, the next rank.
    """
    found = {
        owner.number: owner
        for owner in owners.all
        if owner.header.run is not None and owner.header.pid is not None and shown[owner.number]
    }
    ranks = [owner.header.rank for owner in found.values() if owner.header.rank is not None]
    digits = len(str(max(ranks))) if len(set(ranks)) > 1 else 1

    def employer(owner: Owner) -> Owner:
        seen = {owner.number}
        while (above := owners.parent(owner)) is not None and above.number not in seen:
            if above.number not in found:
                break
            seen.add(above.number)
            owner = above
        return owner

    roots = {owner.number: employer(owner) for owner in found.values()}

    def place(owner: Owner) -> tuple[bool, int, str, int, int, int, bool, int]:
        root = roots[owner.number]
        rank, host = root.header.rank, root.header.host or ""
        # What no launcher has given a rank comes after the ranks.
        begun = root.run, root.start, root.header.pid or 0
        return (rank is None, rank or 0, host, *begun, owner is not root, owner.header.pid or 0)

    order: list[ShownProcess] = []
    workers: dict[int, int] = {}
    for owner in sorted(found.values(), key=place):
        header, root = owner.header, roots[owner.number]
        title = "python" if header.rank is None else f"rank {header.rank:0{digits}}"
        # Perfetto cannot read a name that ends in a backslash.
        name = f"{title} · {shortened(header.host or '', NAME_LETTERS)}".replace("\\", "_")
        if root.start > 1 or root.run:
            name += f" · start {root.start}" if root.start > 1 else f" · run {root.run + 1}"
        if owner is not root:
            workers[root.number] = workers.get(root.number, 0) + 1
            name += f" · worker {workers[root.number]}"
        order.append(ShownProcess(shown[owner.number], name))
    return order


class _OverlapTracks:
    """Tells of the spans of others which cannot be drawn on the track of their thread."""

    # Perfetto drops a span that begins in another one of its track and ends behind it. Our recorder
    # writes none; what others have written is read once for it. Times are taken as a viewer takes
    # them, whole nanoseconds of numbers that are doubles where they have a fraction. Threads with
    # numbers that it does not take, which would all be the main thread, get others.

    def __init__(self, trace: Trace) -> None:
        self._moved: dict[tuple[_Track, int, int], int] = {}
        self._begins: dict[tuple[_Track, int], int] = {}
        self._tids: dict[tuple[_Track, int], int] = {}
        self._names: dict[_Track, str] = {}
        self._orders: dict[_Track, object] = {}
        starts: dict[_Track, array[int]] = defaultdict(lambda: array("q"))
        ends: dict[_Track, array[int]] = defaultdict(lambda: array("q"))
        for _, line in trace.lines():
            event = event_of(line)
            track = _track_of(event) if event else None
            if event is None or track is None:
                continue
            if event.get("ph") == "M":
                self._take_name(track, event)
            elif (times := _times_of(event)) is not None:
                starts[track].append(times[0])
                ends[track].append(times[1])
        self._taken = {*starts, *self._names}
        for track in [*self._taken]:
            if isinstance(track[1], int) and not (0 < track[1] < LARGEST or track == (0, 0)):
                self._tid(track, 0)
        for track, begins in starts.items():
            self._distribute(track, begins, ends[track])

    def __bool__(self) -> bool:
        return bool(self._tids)

    def tid_of(self, event: EventLine) -> object:
        """Return the track of an event of the file: that of its thread, or one for its span."""
        # An arrow goes to where the span has gone that begins at its end.
        track = _track_of(event)
        if track is None:
            return event.get("tid")
        tid = self._tids.get((track, 0), track[1])
        if event.get("ph") in ARROWS:
            start = _ns(event.get("ts"))
            return tid if start is None else self._begins.get((track, start), tid)
        times = _times_of(event)
        return tid if times is None else self._moved.get((track, *times), tid)

    def names(self) -> Iterator[EventLine]:
        """Yield the events that name these tracks."""
        for (track, lane), tid in self._tids.items():
            if not lane and track in self._names:
                continue  # the file names it itself
            pid, thread = track
            number = f" {lane}" if lane > 1 else ""
            name = self._names.get(track, f"thread {thread}")
            name += f"{OF_THREAD}overlapping{number}" if lane else ""
            line: EventLine = {"pid": pid, "tid": tid, "ph": "M"}
            yield {"name": "thread_name", **line, "args": {"name": name}}
            if lane and track in self._orders:
                yield {"name": "thread_sort_index", **line, "args": self._orders[track]}

    def _take_name(self, track: _Track, event: EventLine) -> None:
        args = event.get("args")
        if not isinstance(args, dict):
            return
        if event.get("name") == "thread_name" and isinstance(args.get("name"), str):
            self._names[track] = args["name"]
        elif event.get("name") == "thread_sort_index":
            self._orders[track] = args

    def _distribute(self, track: _Track, starts: array[int], ends: array[int]) -> None:
        order = sorted(range(len(starts)), key=ends.__getitem__, reverse=True)
        order.sort(key=starts.__getitem__)
        lanes: list[list[int]] = [[]]
        stay: set[int] = set()
        for row in order:
            start, end = starts[row], ends[row]
            lane = next(
                (at for at, open_ends in enumerate(lanes) if _fits(open_ends, start, end)), 0
            )
            if not lane and not _fits(lanes[0], start, end):
                lane = len(lanes)
                lanes.append([])
            lanes[lane].append(end)
            if lane:
                tid = self._tid(track, lane)
                self._moved[track, start, end] = tid
                self._begins.setdefault((track, start), tid)
            elif (track, start) in self._begins:
                stay.add(start)
        for start in stay:
            del self._begins[track, start]

    def _tid(self, track: _Track, lane: int) -> int:
        found = self._tids.get((track, lane))
        if found is None:
            found = FIRST_TID + len(self._tids)
            while (track[0], found) in self._taken:
                found += 1
            self._taken.add((track[0], found))
            self._tids[track, lane] = found
        return found


def _fits(open_ends: list[int], start: int, end: int) -> bool:
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    return not open_ends or open_ends[-1] >= end


def _track_of(event: EventLine) -> _Track | None:
    pid, tid = event.get("pid"), event.get("tid")
    return (pid, tid) if isinstance(pid, int | str) and isinstance(tid, int | str) else None


def _times_of(event: EventLine) -> tuple[int, int] | None:
    if event.get("ph") != "X":
        return None
    start, dur = _ns(event.get("ts")), _ns(event.get("dur"))
    return None if start is None or dur is None or dur < 0 else (start, start + dur)


def _ns(us: object) -> int | None:
    if isinstance(us, bool) or not isinstance(us, int | float) or not abs(us) < LATEST_US:
        return None
    # As Perfetto has it: what is whole is exact.
    return int(us) * 1000 if us == int(us) else round(us * 1000)


def gzip_member(text: bytes | bytearray) -> bytes:
    """Return text as a member of a gzip file; members joined are one file."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
    return packer.compress(text) + packer.flush()
