"""Statistics on their way to the sinks: in the order of the steps, when their records are there."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dftrace_ai.inspect.numerics.record import final_values
from dftrace_ai.inspect.output.sinks import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dftrace_ai.inspect.collecting.rings import Awaited
    from dftrace_ai.inspect.output.trace_events import Moment

__all__ = ["ExplicitCall", "Outbox"]


class Shown(Protocol):
    """What is to be logged."""

    def has_come(self) -> bool:
        """Tell whether all records are on the host."""

    def statistics(self) -> Iterable[Statistics]:
        """Return what is logged, in its order."""


class ExplicitCall(NamedTuple):
    """An explicit call for a tensor whose record comes later.

    Attributes:
        layer: name of the layer.
        tensor: name of the tensor.
        feature: which feature asked for it.
        stats: the statistics, in the order of the config.
        iteration: of the call.
        rank: of this process.
        moment: of the call.
        awaited: has the record.
    """

    layer: str
    tensor: str
    feature: str
    stats: Sequence[str]
    iteration: int
    rank: int
    moment: Moment
    awaited: Awaited

    def has_come(self) -> bool:
        """Tell whether the record is on the host."""
        return self.awaited.record is not None

    def statistics(self) -> Iterator[Statistics]:
        """Yield the statistics; nothing where no rank had an element."""
        record = self.awaited.record
        if record is not None and record[13]:
            values = final_values(record, self.stats)
            yield Statistics(
                *(self.layer, self.tensor, self.feature, self.iteration),
                *(values, record, self.moment, self.rank),
            )


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
