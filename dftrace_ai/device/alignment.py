"""The clock of a device against that of the host, from events on a stream that has nothing to do.

An event tells nothing but its distance to others. One that is recorded on an idle stream happens
between the moment before it and that in which it is seen to have: so far is known when that was.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from dftrace_ai.run.emitting import moment

if TYPE_CHECKING:
    from dftrace_ai.device.clock import DeviceClock, DeviceEvent

__all__ = ["Alignment", "Anchor"]

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


class Anchor:
    """An event of which it is known when it happened, by both clocks.

    Attributes:
        event: the event.
        device_ns: nanoseconds of the device since the first anchor.
        low_ns: it did not happen before, nanoseconds since the epoch.
        high_ns: it had happened by then; None until it is seen to have.
    """

    __slots__ = ("device_ns", "event", "high_ns", "low_ns")

    def __init__(self, event: DeviceEvent, device_ns: float, low_ns: int) -> None:
        self.event = event
        self.device_ns = device_ns
        self.low_ns = low_ns
        self.high_ns: int | None = None

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
    """Turns the time of a device's events into that of the host.

    Args:
        clock: makes events.
        device: number of the device.
    """

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

        Args:
            now_ns: the present, nanoseconds since the epoch.
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
        """Return when an event happened by the device's clock.

        Args:
            anchor: what it is measured from, which has happened.
            event: has happened, too.
        """
        return anchor.device_ns + anchor.event.elapsed_time(event) * NS_PER_MS

    def host_ns(self, device_ns: float, anchor: Anchor) -> tuple[int, float]:
        """Return when something happened by the host's clock, and how far that may be off.

        Args:
            device_ns: when, as `device_ns` returns it.
            anchor: what it was measured from; the latest one is taken if that tells more.

        Returns:
            Nanoseconds since the epoch, and nanoseconds to either side.
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
