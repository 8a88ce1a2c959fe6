"""Times that profilers have got wrong, found when all events of a file were seen.

Public traces have events at the time 0 where nobody knew it, and activities of a GPU that last for
days. Reckoned with as they are, either makes another run of a run.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["Mending", "OddTimes", "digits_of"]

US: Final = 1_000
S: Final = 1_000_000_000
DAY: Final = 24 * 3_600 * S

# A profiler holds all events in memory: there are no hours of silence between them. Others may
# have slept for days.
SILENCE_NS: Final = 3_600 * S
LONG_SILENCE_NS: Final = 365 * DAY

# Those that are left out are few, or all at the same time.
LEAST_TIMES: Final = 4

# Times that lie so close are looked at together; who has more of them keeps no order.
BUCKET_NS: Final = 60 * S
MOST_BUCKETS: Final = 100_000

# What one stream of a GPU does, one after the other. A kernel that was launched as a dependent one
# begins while the one before it ends, and old files have whole microseconds: in public traces
# that is up to 13 us. None goes on behind the end of the next.
ON_STREAM: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
AROUND: Final = "gpu_user_annotation"
OVERLAP_NS: Final = 20 * US

# The last of a stream may outlast what else was recorded, but not by more than all of that.
TAIL_NS: Final = 100_000 * US

OF_KINETO: Final = frozenset({*ON_STREAM, AROUND, "cpu_op", "user_annotation", "operator"})


class Mending(NamedTuple):
    """What is to be done with the events of a file.

    Attributes:
        first_ns: times before this one cannot be.
        last_ns: nor can those behind this one.
        dur_ns: durations by the numbers of events that are to have others.
        left_out: how many events are at times that cannot be.
    """

    first_ns: int
    last_ns: int
    dur_ns: dict[int, int]
    left_out: int

    def told(self) -> list[str]:
        """Return what people are told of it, a line each."""
        told = []
        if self.left_out:
            count = counted(self.left_out, "event")
            told.append(f"{count} at times that cannot be, far from all others, left out")
        if self.dur_ns:
            count = counted(len(self.dur_ns), "duration")
            told.append(
                f"{count} that cannot be, cut where the next event of a stream of the GPU begins "
                "or the trace ends"
            )
        return told

    def has(self, event: JsonObject) -> bool:
        """Return whether an event is at a time that can be, or at none."""
        start = _nanoseconds(event.get("ts"))
        return start is None or event.get("ph") == "M" or self.first_ns <= start <= self.last_ns


class _Together:
    """Times that lie close together."""

    def __init__(self, first: int) -> None:
        self.first = self.last = self.end = self.latest = first
        self.count = 0
        self.times = 1

    def add(self, start: int, end: int) -> None:
        self.count += 1
        if start != self.latest:
            self.times += 1
            self.latest = start
            if not self.first <= start <= self.last:
                self.first, self.last = min(self.first, start), max(self.last, start)
        self.end = max(self.end, end)

    def join(self, later: _Together) -> None:
        self.count += later.count
        self.times += later.times
        self.last = later.last
        self.end = max(self.end, later.end)


class _Stream:
    """What one stream does: columns, since there may be millions of it."""

    def __init__(self) -> None:
        self.start, self.dur = array("q"), array("q")
        self.number, self.launch = array("q"), array("q")

    def add(self, start: int, dur: int, number: int, launch: int) -> None:
        if max(abs(start), dur) < 1 << 62:
            self.start.append(start)
            self.dur.append(dur)
            self.number.append(number)
            self.launch.append(launch)

    def in_order(self, first: int, last: int) -> list[tuple[int, int, int, int]]:
        rows = sorted(range(len(self.start)), key=self.start.__getitem__)
        columns = self.start, self.dur, self.number, self.launch
        found = (tuple(column[row] for column in columns) for row in rows)
        return [row for row in found if first <= row[0] <= last]  # type: ignore[misc]


class OddTimes:
    """Takes the times of events in, and tells which cannot be when it has all of them.

    Args:
        kineto: the file says that torch.profiler has written it.

    Example::

        odd = OddTimes()
        for number, event in enumerate(events):
            odd.add(number, event)
        print(odd.mending().told())
    """

    def __init__(self, *, kineto: bool = False) -> None:
        self.kineto = kineto
        self._buckets: dict[int, _Together] = {}
        self._streams: dict[Hashable, _Stream] = {}
        self._around = _Stream()
        # What the host has done for hours; a profiler has rarely seen that.
        self._long = _Stream()

    def add(self, number: int, event: JsonObject) -> None:
        """Take an event in.

        Args:
            number: what it is called by in `Mending`.
            event: the event; its numbers are as `ProfileText` gives them.
        """
        start = _nanoseconds(event.get("ts"))
        ph = event.get("ph")
        if start is None or ph == "M":
            return
        cat = event.get("cat")
        kind = cat.lower() if isinstance(cat, str) else ""
        dur = _nanoseconds(event.get("dur")) if ph == "X" else None
        end = start
        if kind in OF_KINETO:
            self.kineto = True
        if dur is not None and dur > 0:
            if kind in ON_STREAM:
                stream, launch = _stream_of(event)
                self._streams.setdefault(stream, _Stream()).add(start, dur, number, launch)
            elif kind == AROUND:
                self._around.add(start, dur, number, -1)
            elif dur > SILENCE_NS:
                self._long.add(start, dur, number, -1)
            else:
                end += dur
        # What is not behind 0 is by itself.
        bucket = (start if start > 0 else start - 1) // BUCKET_NS
        together = self._buckets.get(bucket)
        if together is None and len(self._buckets) < MOST_BUCKETS:
            together = self._buckets[bucket] = _Together(start)
        if together:
            together.add(start, end)

    def mending(self) -> Mending | None:
        """Return what is to be done; None where all times can be."""
        groups = self._groups()
        if not groups:
            return None
        most = max(groups, key=lambda group: (group.times, group.count))
        others = [group for group in groups if group is not most]
        left_out = sum(group.count for group in others)
        if sum(group.times for group in others) * LEAST_TIMES > most.times:
            # Which of them are right nobody can tell.
            return None
        dur_ns = self._durations(most)
        if not left_out and not dur_ns:
            return None
        return Mending(most.first, most.last, dur_ns, left_out)

    def _groups(self) -> list[_Together]:
        """Return times in groups, between which there is a silence that cannot be."""
        if len(self._buckets) >= MOST_BUCKETS:
            return []
        groups: list[_Together] = []
        silence = SILENCE_NS if self.kineto else LONG_SILENCE_NS
        for at in sorted(self._buckets):
            here = self._buckets[at]
            if groups and groups[-1].last > 0 and here.first - groups[-1].last <= silence:
                groups[-1].join(here)
            else:
                groups.append(here)
        while len(groups) > 1 and groups[0].last <= 0:
            early, next_group = groups[:2]
            # A profile that counts from its own beginning may have an event there.
            near = min(silence, next_group.last - next_group.first) if self.kineto else DAY
            if next_group.first - early.last > near:
                break
            early.join(next_group)
            groups[:2] = [early]
        return groups

    def _durations(self, all_others: _Together) -> dict[int, int]:
        first, last, end = all_others.first, all_others.last, all_others.end
        cut: dict[int, int] = {}
        ends: dict[int, int] = {}
        tails: list[tuple[int, int, int]] = []
        for stream in self._streams.values():
            rows = stream.in_order(first, last)
            for (start, dur, number, _), later in zip(rows, _next_of(rows), strict=True):
                if later is None:
                    tails.append((start, dur, number))
                    continue
                over = start + dur - later[0]
                if over > OVERLAP_NS or over > later[1] + US:
                    cut[number] = later[0] - start
                    ends[start + dur] = later[0]
                end = max(end, start + cut.get(number, dur))
        for start, dur, number, _ in sorted(self._long.in_order(first, last), key=_end_of):
            if self.kineto and start + dur > end + max(end - first, SILENCE_NS):
                cut[number] = max(0, end - start)
            else:
                end = max(end, start + dur)
        latest = end + max(end - first, TAIL_NS)
        around = self._around.in_order(first, last)
        for start, dur, number in (*tails, *(row[:3] for row in around)):
            if start + dur > latest:
                cut[number] = max(0, end - start)
                ends[start + dur] = end
        for start, dur, number, _ in around:
            if start + dur in ends and number not in cut:
                cut[number] = max(0, ends[start + dur] - start)
        return cut


def _end_of(row: tuple[int, int, int, int]) -> int:
    return row[0] + row[1]


def _next_of(
    rows: list[tuple[int, int, int, int]],
) -> Iterator[tuple[int, int, int, int] | None]:
    """Yield for each activity of a stream the next one; None where there is none.

    What begins at the same time is none, nor is what the same launch has begun: a graph's branches.
    """
    looks = 10 * len(rows) + 1000
    for at, (start, _, _, launch) in enumerate(rows):
        found = None
        for place in range(at + 1, min(len(rows), at + 1 + looks)):
            looks -= 1
            later = rows[place]
            if later[0] > start and (launch < 0 or later[3] != launch):
                found = later
                break
        yield found


def _stream_of(event: JsonObject) -> tuple[Hashable, int]:
    """Return the stream of an activity, and the number of its launch, -1 where that is not told."""
    args = event.get("args")
    said: dict[str, Any] = args if isinstance(args, dict) else {}
    stream, launch = said.get("stream"), said.get("correlation")
    place: tuple[Any, ...] = (str(event.get("pid")), str(event.get("tid")))
    if isinstance(stream, int | str):
        # Several streams may share a thread, and one of them several.
        place = (place[0], str(said.get("device")), str(said.get("context")), str(stream), "stream")
    return place, launch if isinstance(launch, int) and 0 < launch < 1 << 62 else -1


def digits_of(ns: int) -> Any:
    """Return nanoseconds as a number of microseconds with its digits."""
    return orjson.Fragment(f"{ns // US}.{ns % US:03}")


def _nanoseconds(us: Any) -> int | None:
    """Return microseconds, as `ProfileText` gives numbers; None for what is none."""
    if isinstance(us, orjson.Fragment):
        digits = orjson.dumps(us)
        if digits[-4:-3] == b"." and digits[-3:].isdigit():
            return int(digits[:-4] + digits[-3:])
        whole, _, fraction = digits.partition(b".")
        if whole.isdigit() and fraction.isdigit():
            return int(whole) * US + int((fraction + b"000")[:3])
        return round(float(digits) * US)
    return us * US if isinstance(us, int) and not isinstance(us, bool) else None
