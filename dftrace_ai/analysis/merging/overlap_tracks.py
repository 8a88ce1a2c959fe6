"""Tracks of their own for spans that overlap others of their thread, which a viewer would drop."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from dftrace_ai.analysis.reading.reader import event_of
from dftrace_ai.analysis.track_order import OF_THREAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import EventLine

# Beyond it Perfetto knows no process, and takes a thread, as it does 0, for the main one.
LARGEST: Final = 1 << 31

ARROWS: Final = frozenset("stf")

# For spans that overlap: where the recorder has its own tracks for them, above every id that Linux
# gives.
FIRST_TID: Final = 0x50000000

LATEST_US: Final = 2.0**52

_Track: TypeAlias = "tuple[int | str, int | str]"


class OverlapTracks:
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
