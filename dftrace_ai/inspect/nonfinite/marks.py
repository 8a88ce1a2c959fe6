"""Which tensors have non-finite values at present, and where and when they got the first ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from dftrace_ai.inspect.output import trace_events
from dftrace_ai.inspect.output.log_files import tell_on_stderr
from dftrace_ai.run import emitting
from dftrace_ai.wording import ToldOnce

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.run.emitting import Moment

__all__ = ["MARKS", "WATCHES", "Counts", "Marks", "Place"]


class Counts(NamedTuple):
    """What was found in a tensor."""

    nan: int  # elements that are NaN
    inf: int  # elements that are infinite
    total: int  # all elements

    @classmethod
    def of(cls, record: Record) -> Counts:
        """Take the counts out of a record."""
        return cls(int(record.n_nan), int(record.n_inf), int(record.n_total))


class Place(NamedTuple):
    """Where and when a tensor was seen."""

    layer: str
    tensor: str
    step: int  # the iteration
    micro_batch: int  # which forward of the layer in the step, from 0
    moment: Moment  # when, and in which span

    @classmethod
    def now(cls, layer: str, tensor: str, micro_batch: int) -> Place:
        """Return the place of what is seen in this moment."""
        return cls(layer, tensor, MARKS.step, micro_batch, emitting.moment())


class Marks:
    """Which tensors have non-finite values at present; it marks and tells what is new."""

    # A tensor is marked in the trace when its counts leave zero, and again when they do so after
    # they were zero. The first one of all is also told in the log.

    def __init__(self) -> None:
        self.step = 0
        """The present iteration."""
        self.tell: Callable[[str], None] | None = None
        """Writes a line to the log of a session; without one it goes to standard error."""
        self._bad: set[tuple[str, str]] = set()
        self.told = ToldOnce()
        """What is told once in a session, or once without one."""

    def reset(self) -> None:
        """Forget what was found."""
        self._bad.clear()
        self.told.forget()

    def begin(self, step: int, tell: Callable[[str], None]) -> None:
        """Begin anew, with a session that has a log."""
        self.reset()
        self.step = step
        self.tell = tell

    def end(self) -> None:
        """Take in that the session is over."""
        self.reset()
        self.tell = None

    def stepped(self, step: int | None) -> None:
        """Take in the number of the next step; without a session, None, they are counted."""
        for watch in WATCHES:
            watch.stepped()
        self.step = self.step + 1 if step is None else step

    def counted(
        self, place: Place, counts: Counts, causes: Callable[[], dict[str, Counts]] | None = None
    ) -> None:
        """Take in the counts of a tensor."""
        key = place.layer, place.tensor
        if not counts.nan and not counts.inf:
            self._bad.discard(key)
            return
        if key in self._bad:
            return
        self._bad.add(key)
        found = {"n_nan": counts.nan, "n_inf": counts.inf, "n": counts.total}
        made_of = causes() if causes is not None else {}
        for name, one in made_of.items():
            found |= {f"{name}_n_nan": one.nan, f"{name}_n_inf": one.inf}
        first = self.told.first("non-finite")
        trace_events.nonfinite(
            place.layer,
            place.tensor,
            place.moment,
            {"iteration": place.step, "micro_batch": place.micro_batch, "first": first, **found},
        )
        if first:
            self._say(place, counts, made_of)

    def seen(
        self,
        layer: str,
        tensor: str,
        record: Record,
        micro_batch: int,
        causes: Callable[[], dict[str, Counts]] | None = None,
    ) -> None:
        """Take in the record of a tensor of this moment; as `counted`."""
        if record.n_nan or record.n_inf or (layer, tensor) in self._bad:
            self.counted(Place.now(layer, tensor, micro_batch), Counts.of(record), causes)

    def _say(self, place: Place, counts: Counts, made_of: dict[str, Counts]) -> None:
        message = (
            f"{place.layer}: {place.tensor} has {counts.nan} NaN and {counts.inf} infinities in "
            f"{counts.total} elements, the first ones seen: iteration {place.step}, "
            f"micro-batch {place.micro_batch}"
        )
        told = [
            f"{name} {'is finite' if not (one.nan or one.inf) else 'has such values, too'}"
            for name, one in made_of.items()
        ]
        if told:
            message += f"; its {' and its '.join(told)}"
        self.say(message)

    def say(self, message: str) -> None:
        """Write a line to the log of the session, to standard error without one."""
        if self.tell is not None:
            self.tell(message)
        else:
            tell_on_stderr(f"dftrace: {message}")


MARKS = Marks()
"""Those of the process: attached layers and watches share them."""


class Stepping(Protocol):
    """A watch over a model."""

    def stepped(self) -> None:
        """Take in that a step has ended."""


WATCHES: list[Stepping] = []
"""Those that are on."""
