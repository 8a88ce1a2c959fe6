"""Statistics on their way out: in which order they go, and who takes them."""

from __future__ import annotations

import abc
import logging
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dftrace_ai.inspect.errors import InspectAssertionError
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.run import emitting
from dftrace_ai.wording import ToldOnce, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.inspect.output.log_files import MainLog, StatisticsFile
    from dftrace_ai.run.emitting import Moment


class BaseLogger(abc.ABC):
    """What `initialize(statistics_logger=...)` takes; any object with `log_scalar` will do, too.

    Example::

        class Printer(BaseLogger):
            def log_scalar(self, name, value, iteration, **kwargs):
                print(iteration, name, value)
    """

    @abc.abstractmethod
    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Take one number.

        Args:
            name: ``{layer}_{tensor}_{statistic}``.
            value: the statistic, a number of fp32.
            iteration: the step to which it belongs.
            kwargs: nothing now; more may come.
        """


@dataclass(frozen=True)
class Statistics:
    """The statistics of one tensor in one iteration."""

    layer: str
    tensor: str  # name of the tensor, such as ``activation``
    feature: str  # which feature asked for them
    iteration: int  # the step in which the tensor was seen
    values: Mapping[str, float]  # fp32 numbers by statistic, in the order of the config
    record: Record  # what they were made of
    moment: Moment  # when and where the tensor was seen
    rank: int


class Shown(Protocol):
    """What is to be logged."""

    def has_come(self) -> bool:
        """Tell whether all records are on the host."""

    def statistics(self) -> Iterable[Statistics]:
        """Return what is logged, in its order."""


@dataclass(frozen=True, eq=False)
class _Place:
    """What waits; it equals nothing but itself, so that to take it out is one step."""

    shown: Shown


class Outbox:
    """A queue: what is logged first has to come first, though a later record may be there."""

    # Nothing is held: another thread may log, and so may the handler of a signal within a call.

    def __init__(self, send: Callable[[Statistics], None]) -> None:
        self._send = send
        self._waiting: deque[_Place] = deque()

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


class _Receiver(NamedTuple):
    name: str
    receive: Callable[[str, float, int], Any]


class Sinks:
    """Hands statistics to everyone who wants them; one that fails is told once, and goes on."""

    def __init__(
        self,
        log: MainLog,
        statistics_logger: Any = None,
        tb_writer: Any = None,
        file: StatisticsFile | None = None,
    ) -> None:
        self._log = log
        self._file = file
        self._told = ToldOnce()
        self._receivers: list[_Receiver] = []
        for given, method, argument in (
            (statistics_logger, "log_scalar", "statistics_logger"),
            (tb_writer, "add_scalar", "tb_writer"),
        ):
            if given is None:
                continue
            receive = getattr(given, method, None)
            if not callable(receive):
                raise InspectAssertionError(
                    f"{argument}: {type(given).__name__} has no method {method}"
                )
            self._receivers.append(_Receiver(type(given).__name__, receive))

    def send(self, statistics: Statistics) -> None:
        """Hand over the statistics of a tensor, number by number, and to the trace as a whole."""
        before = f"{statistics.layer}_{statistics.tensor}_"
        for stat, value in statistics.values.items():
            for name, receive in self._receivers:
                try:
                    receive(before + stat, value, statistics.iteration)
                except Exception as error:  # noqa: BLE001, PERF203 - it must not end the training
                    self._tell_of(name, error)
        if self._file is not None:
            try:
                self._file.write(before, statistics.values, statistics.iteration)
            except Exception as error:  # noqa: BLE001 - as above
                self._tell_of("the statistics file", error)
        if emitting.is_recording():
            _record(statistics)

    def flush(self) -> None:
        """Bring what was handed over into the file."""
        if self._file is not None:
            try:
                self._file.flush()
            except OSError as error:
                self._tell_of("the statistics file", error)

    def close(self) -> None:
        """Close the statistics file; the loggers of the user stay open."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._tell_of("the statistics file", error)

    def _tell_of(self, name: str, error: Exception) -> None:
        if self._told.first(name):
            self._log.write(f"{name} failed, which is told once: {described(error)}", logging.ERROR)


def _record(found: Statistics) -> None:
    """Put the statistics of a tensor on the timeline of the trace."""
    record = found.record
    counts = {
        "n": record.n_total,
        "n_nan": record.n_nan,
        "n_inf": record.n_inf,
        "n_zero": record.n_zero,
    }
    about: dict[str, str | int] = {
        "iteration": found.iteration,
        "rank": found.rank,
        "feature": found.feature,
    }
    known = {key: int(count) for key, count in counts.items() if not math.isnan(count)}
    name = f"{found.layer}:{found.tensor}"
    trace_events.numbers(name, about, found.values, known, found.moment)
