"""Statistics on their way to the sinks: in the order of the steps, when their records are there."""

from __future__ import annotations

import threading
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


class Outbox:
    """A queue: what is logged first has to come first, though a later record may be there.

    Args:
        send: takes the statistics of a tensor.
    """

    def __init__(self, send: Callable[[Statistics], None]) -> None:
        self._send = send
        self._waiting: deque[Shown] = deque()
        # Not held while something is sent: a logger of the user may call us again.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, shown: Shown) -> None:
        """Log something now, or when its turn comes."""
        self._waiting.append(shown)
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
        with self._lock:
            if self._waiting and self._waiting[0].has_come():
                return self._waiting.popleft()
        return None
