"""Intervals of streams: events where spans begin and end, told of when the device has passed them.

Nothing waits for the device. What has been passed is asked for in batches, by a later span of the
same stream, with one look for each batch: a stream passes its events in order.
Loaded late, with the companions.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from dftrace_ai.run import emitting
from dftrace_ai.run.emitting import moment
from dftrace_ai.wording import ToldOnce, described, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.device.clock import DeviceClock, DeviceEvent, Place
    from dftrace_ai.run.emitting import Moment


NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000

# So often is an event asked whether it has happened, at about a microsecond each.
LOOKS: Final = 50

# Between two anchors. Milliseconds in single precision, as events tell them, are exact to a quarter
# of a microsecond that long.
FIRST_PAUSE_NS: Final = NS_PER_S // 10
LONGEST_PAUSE_NS: Final = 4 * NS_PER_S

# What the rate of two clocks of crystal may differ by, where it is not known better; and how much
# of it may come and go with the temperature.
MOST_DRIFT: Final = 2e-4
CHANGE_OF_DRIFT: Final = 1e-6

KEPT: Final = 8


@dataclass(slots=True, eq=False)
class Anchor:
    """An event of which it is known when it happened, by both clocks."""

    event: DeviceEvent
    device_ns: float  # of the device, since the first anchor
    low_ns: int  # it did not happen before, since the epoch
    high_ns: int | None = None  # it had happened by then; None until it is seen to have

    def has_happened(self) -> bool:
        """Return whether it has, as far as one look tells."""
        if self.high_ns is None and self.event.query():
            self.high_ns = moment()[0]
        return self.high_ns is not None

    @property
    def error_ns(self) -> int:
        """Half of the time in which it can have happened."""
        return (self.high_ns - self.low_ns + 1) // 2 if self.high_ns is not None else 0

    @property
    def host_ns(self) -> int:
        """The middle of that time."""
        return self.low_ns + self.error_ns


class Alignment:
    """Turns the time of a device's events into that of the host."""

    def __init__(self, clock: DeviceClock, device: int) -> None:
        self._clock = clock
        self._device = device
        self._side = clock.side_stream(device)
        self._anchors: deque[Anchor] = deque(maxlen=KEPT)
        self._pause_ns = FIRST_PAUSE_NS
        self._next_ns = 0
        self._rate = 1.0
        self._drift = MOST_DRIFT

    def look(self, now_ns: int) -> Anchor:
        """Anchor the clocks anew if it is time to, and return what events are measured from now on.

        `now_ns`: the present, nanoseconds since the epoch.
        """
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, LONGEST_PAUSE_NS)
            self._anchor()
        return self._anchors[-1]

    def _anchor(self) -> None:
        event = self._clock.event()
        made = Anchor(event, 0.0, moment()[0])
        event.record(self._side)
        happened = any(made.has_happened() for _ in range(LOOKS))
        if not self._anchors:
            self._anchors.append(made)
        before = self._anchors[-1]
        if happened and before is not made and before.has_happened():
            made.device_ns = before.device_ns + before.event.elapsed_time(event) * NS_PER_MS
            self._anchors.append(made)
            self._measure_rate()
        if not happened:
            # It may share its way to the device with a stream that is busy.
            self._side = self._clock.side_stream(self._device)

    def _measure_rate(self) -> None:
        first, last = self._anchors[0], self._anchors[-1]
        elapsed = last.device_ns - first.device_ns
        if elapsed < NS_PER_S:
            return
        rate = (last.host_ns - first.host_ns) / elapsed
        drift = (first.error_ns + last.error_ns) / elapsed + CHANGE_OF_DRIFT
        if drift < MOST_DRIFT and abs(rate - 1) <= MOST_DRIFT:
            self._rate, self._drift = rate, drift

    def device_ns(self, anchor: Anchor, event: DeviceEvent) -> float:
        """Return when an event happened by the device's clock."""
        return anchor.device_ns + anchor.event.elapsed_time(event) * NS_PER_MS

    def host_ns(self, device_ns: float, anchor: Anchor) -> tuple[int, float]:
        """Return when something happened by the host's clock, and how far that may be off.

        Gives nanoseconds since the epoch, and nanoseconds to either side.
        """
        error = self._error_ns(device_ns, anchor)
        last = self._anchors[-1]
        if last is not anchor and last.high_ns is not None:
            of_last = self._error_ns(device_ns, last)
            if of_last < error:
                anchor, error = last, of_last
        # Whole nanoseconds: the time since the epoch is too long for a double.
        return anchor.host_ns + round((device_ns - anchor.device_ns) * self._rate), error

    def _error_ns(self, device_ns: float, anchor: Anchor) -> float:
        return anchor.error_ns + abs(device_ns - anchor.device_ns) * self._drift

    def span_ns(self, milliseconds: float) -> int:
        """Return a length of the device's in nanoseconds of the host."""
        return max(0, round(milliseconds * NS_PER_MS * self._rate))


BATCH: Final = 16
"""So many intervals of a stream are asked for together."""

LOOK_NS: Final = 1_000_000_000
"""So long fewer of them may be asked for together: a process that is killed loses them."""

MOST_UNDER_WAY: Final = 4096
"""So many intervals of a stream may wait for the device; beyond that spans have none."""

MOST_STREAMS: Final = 64
"""So many streams of a process have tracks."""

REMEMBERED: Final = 64

NS_PER_US: Final = 1000


What: TypeAlias = "tuple[str, str, Mapping[str, object]]"
"""Of a span its category, its name and its arguments."""


@dataclass(slots=True, eq=False)
class Interval:
    """The time of a stream between the events at a span's beginning and end."""

    stream: _Stream  # that was current when the span began
    begun: Moment | None  # a moment within the span
    anchor: Anchor  # what its events are measured from
    number: int  # of its first event among those of the stream
    start: DeviceEvent  # the event at its beginning
    last_number: int  # of its last event
    end: DeviceEvent | None = None  # the event at its end, once it has one
    what: What = ("", "", {})


class _Device:
    def __init__(self, clock: DeviceClock, number: int) -> None:
        self.number = number
        self.alignment = Alignment(clock, number)
        self.free: list[DeviceEvent] = []
        self.streams = 0


class _Stream:
    def __init__(self, device: _Device, place: Place, label: str) -> None:
        if not place.is_default:
            device.streams += 1
        number = 0 if place.is_default else device.streams
        self.device = device
        self.number = number
        self.track = f"{label} {device.number} stream {number}"
        self.of_library = place.stream
        self.under_way: deque[Interval] = deque()
        self.events = 0
        self.look_ns = 0
        # Numbers and times of the last ones that nothing has enclosed yet.
        self._outermost: deque[tuple[Interval, int, int]] = deque(maxlen=REMEMBERED)

    def next_number(self) -> int:
        """Return the number of one more event."""
        self.events += 1
        return self.events

    def in_order(self, one: Interval, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Return times of an interval that lie to those before as its events lie to theirs.

        Anchors come and go, and devices round: events that followed each other would not.
        """
        before = self._outermost
        while before and before[-1][0].number > one.number:
            _, inner_start, inner_end = before.pop()
            start_ns, end_ns = min(start_ns, inner_start), max(end_ns, inner_end)
        if before:
            last, _, last_end = before[-1]
            if last.last_number > one.number:  # of another thread or task, and open meanwhile
                return start_ns, end_ns
            start_ns = max(start_ns, last_end)
        end_ns = max(start_ns, end_ns)
        before.append((one, start_ns, end_ns))
        return start_ns, end_ns


class StreamTimes:
    """What the streams of a process do during its spans.

    No call raises, whatever the device's library does: what has no time is counted and told once.

    Attributes:
        left_out: spans that have no time, for what went wrong or for too many under way.
    """

    def __init__(self, clock: DeviceClock) -> None:
        self._clock = clock
        # A handler of a signal may end the run in the middle of a call of the same thread.
        self._lock = threading.RLock()
        self._devices: dict[int, _Device] = {}
        self._streams: dict[object, _Stream] = {}
        self._captures = 0
        self._told = ToldOnce()
        self._parents: list[object] = []
        self.left_out = 0
        clock.watch_captures(self._capture_begins, self._capture_ends)

    def _capture_begins(self) -> None:
        with self._lock:
            self._captures += 1

    def _capture_ends(self) -> None:
        with self._lock:
            self._captures = max(0, self._captures - 1)

    def begin(self, of: Moment | None = None, *, is_resume: bool = False) -> Interval | None:
        """Record an event on the current stream, at the beginning of a span: `of`, or the open one.

        Returns what ends it; None where there is no device in use, or it is captured into a graph.
        """
        try:
            with self._lock:
                return None if self._captures else self._begin(of, is_resume)
        except Exception as error:  # noqa: BLE001 - whatever the device's library raises
            self._leave_out(error)
            return None

    def _begin(self, of: Moment | None, is_resume: bool) -> Interval | None:
        place = self._clock.place()
        if place is None:
            return None
        stream = self._stream_of(place)
        if stream is None or len(stream.under_way) >= MOST_UNDER_WAY:
            self.left_out += 1
            return None
        begun = None if is_resume else of or emitting.moment()
        anchor = stream.device.alignment.look(emitting.time_us() * NS_PER_US)
        start = self._event(stream.device)
        start.record(stream.of_library)
        number = stream.next_number()
        return Interval(stream, begun, anchor, number, start, number)

    def _stream_of(self, place: Place) -> _Stream | None:
        stream = self._streams.get(place.stream)
        if stream is None and len(self._streams) < MOST_STREAMS:
            device = self._devices.get(place.device)
            if device is None:
                device = self._devices[place.device] = _Device(self._clock, place.device)
            stream = self._streams[place.stream] = _Stream(device, place, self._clock.label)
        return stream

    def _event(self, device: _Device) -> DeviceEvent:
        return device.free.pop() if device.free else self._clock.event()

    def end(self, interval: Interval, what: What) -> None:
        """Record an event at the end of a span, on the stream on which it began."""
        try:
            with self._lock:
                self._end(interval, what)
        except Exception as error:  # noqa: BLE001 - whatever the device's library raises
            self._leave_out(error)

    def _end(self, interval: Interval, what: What) -> None:
        if self._streams.get(interval.stream.of_library) is not interval.stream:
            return  # begun in a run that is over, or before a fork
        if self._captures or not self._clock.is_usable():
            self.left_out += 1
            return
        stream = interval.stream
        if interval.begun is None:
            interval.begun = emitting.moment()
        interval.what = what
        interval.end = self._event(stream.device)
        interval.end.record(stream.of_library)
        interval.last_number = stream.next_number()
        waiting = stream.under_way
        waiting.append(interval)
        full, late = len(waiting) % BATCH == 0, interval.begun[0] >= stream.look_ns
        if full or late:
            stream.look_ns = interval.begun[0] + LOOK_NS
            least = BATCH if full else 1
            try:
                while len(waiting) >= least and self._is_past(waiting[least - 1]):
                    self._tell_of(stream, least)
            except Exception as error:  # noqa: BLE001 - they are asked for again
                self._tell_once(error)

    def drop(self, interval: Interval) -> None:
        """Take back what was begun: its span is not recorded."""
        with self._lock:
            interval.stream.device.free.append(interval.start)

    @staticmethod
    def _is_past(interval: Interval) -> bool:
        return interval.anchor.has_happened() and bool(interval.end and interval.end.query())

    def settle(self) -> int:
        """Tell of all intervals that the devices have passed."""
        try:
            with self._lock:
                return self._settle()
        except Exception as error:  # noqa: BLE001 - whatever the device's library raises
            self._tell_once(error)
            return sum(len(stream.under_way) for stream in self._streams.values())

    def _settle(self) -> int:
        for stream in self._streams.values():
            waiting = stream.under_way
            while not self._captures and waiting and self._is_past(waiting[0]):
                self._tell_of(stream, 1)
        return sum(len(stream.under_way) for stream in self._streams.values())

    def _tell_of(self, stream: _Stream, count: int) -> None:
        for _ in range(min(count, len(stream.under_way))):
            interval = stream.under_way.popleft()
            try:
                self._tell(stream, interval)
            except Exception as error:  # noqa: BLE001 - whatever the device's library raises
                self._leave_out(error)

    def _tell(self, stream: _Stream, interval: Interval) -> None:
        start, end = interval.start, interval.end
        if end is None or interval.begun is None:
            return
        alignment = stream.device.alignment
        start_ns, error_ns = alignment.host_ns(
            alignment.device_ns(interval.anchor, start), interval.anchor
        )
        end_ns = start_ns + alignment.span_ns(start.elapsed_time(end))
        stream.device.free += (start, end)
        start_ns, end_ns = stream.in_order(interval, start_ns, end_ns)
        category, name, args = interval.what
        told = {
            "device": stream.device.number,
            "stream": stream.number,
            "error_us": round(error_ns / NS_PER_US, 1),
        }
        emitting.complete_within(
            name,
            max(0, start_ns),
            max(0, end_ns),
            {**args, **told},
            category=f"gpu.{category}",
            track=stream.track,
            of=interval.begun,
        )

    def _leave_out(self, error: Exception) -> None:
        self.left_out += 1
        self._tell_once(error)

    def _tell_once(self, error: Exception) -> None:
        if self._told.first():
            warn(
                "a span has no time on the device, which is told once and counted: %s",
                described(error),
            )

    def restart(self) -> None:
        """Forget everything: another run has begun, whose clock has another beginning."""
        with self._lock:
            self._devices, self._streams = {}, {}
            self.left_out = 0
            self._told.forget()

    def forget_parent(self) -> None:
        """In a forked child: all events are the parent's, and so is whoever held the lock."""
        # Kept: the library would have the device end events of which it knows nothing here.
        self._parents.append((self._devices, self._streams))
        self._lock = threading.RLock()
        self._captures = 0
        self.restart()
