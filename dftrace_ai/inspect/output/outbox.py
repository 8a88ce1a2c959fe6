"""Statistics on their way to the sinks: in the order of the steps, when their records are there."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dftrace_ai.inspect.output.logger_interface import Statistics

__all__ = ["Outbox"]


class Shown(Protocol):
    """What is to be logged."""

    def has_come(self) -> bool:
        """Tell whether all records are on the host."""

    def statistics(self) -> Iterable[Statistics]:
        """Return what is logged, in its order."""


class _Place:
    """What waits; it equals nothing but itself, so that to take it out is one step."""

    __slots__ = ("shown",)

    def __init__(self, shown: Shown) -> None:
        self.shown = shown


class Outbox:
    """A queue: what is logged first has to come first, though a later record may be there.

    Nothing is held: another thread may log, and so may the handler of a signal within a call.

    Args:
        send: takes the statistics of a tensor.
    """

    def __init__(self, send: Callable[[Statistics], None]) -> None:
        self._send = send
        self._waiting: deque[_Place] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, shown: Shown) -> None:
        """Log something now, or when its turn comes."""
        self._waiting.append(_Place(shown))
        self.deliver()

    def deliver(self) -> bool:
        """Log what can be logged; say whether it was anything."""
        delivered = False
        while (first := self._first()) is not None:
            delivered = True
            for statistics in first.statistics():
                self._send(statistics)
        return delivered

    def _first(self) -> Shown | None:
        """Take out what is next, None where it has not come."""
        while True:
            try:
                place = self._waiting[0]
            except IndexError:
                return None
            if not place.shown.has_come():
                return None
            try:
                self._waiting.remove(place)
            except ValueError:
                continue  # whoever came meanwhile logs it
            return place.shown
