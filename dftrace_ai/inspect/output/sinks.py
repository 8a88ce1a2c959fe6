"""Where statistics go: loggers of the user, TensorBoard, the statistics file and the trace."""

from __future__ import annotations

import abc
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect.errors import InspectAssertionError, described
from dftrace_ai.inspect.output import trace_events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.inspect.output.log_files import MainLog, StatisticsFile
    from dftrace_ai.inspect.output.trace_events import Moment

__all__ = ["BaseLogger", "Sinks", "Statistics"]


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
    """The statistics of one tensor in one iteration.

    Attributes:
        layer: name of the layer.
        tensor: name of the tensor, such as ``activation``.
        feature: which feature asked for them.
        iteration: the step in which the tensor was seen.
        values: fp32 numbers by statistic, in the order of the config.
        record: what they were made of.
        moment: when and where the tensor was seen.
        rank: of this process.
    """

    layer: str
    tensor: str
    feature: str
    iteration: int
    values: Mapping[str, float]
    record: Record
    moment: Moment
    rank: int


class _Receiver(NamedTuple):
    name: str
    receive: Callable[[str, float, int], Any]


class Sinks:
    """Hands statistics to everyone who wants them; one that fails is told once, and goes on.

    Args:
        log: where a failure is told.
        statistics_logger: an object with `log_scalar`, or None.
        tb_writer: an object with `add_scalar`, as TensorBoard's SummaryWriter, or None.
        file: the statistics file, or None.

    Raises:
        InspectAssertionError: the logger has no `log_scalar`, or the writer no `add_scalar`.
    """

    def __init__(
        self,
        log: MainLog,
        statistics_logger: Any = None,
        tb_writer: Any = None,
        file: StatisticsFile | None = None,
    ) -> None:
        self._log = log
        self._file = file
        self._broken: set[str] = set()
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
        if file is not None:
            self._receivers.append(_Receiver("the statistics file", file.write))

    def send(self, statistics: Statistics) -> None:
        """Hand over the statistics of a tensor, number by number, and to the trace as a whole."""
        before = f"{statistics.layer}_{statistics.tensor}_"
        for stat, value in statistics.values.items():
            for receiver in self._receivers:
                self._hand_over(receiver, before + stat, value, statistics.iteration)
        trace_events.statistics(statistics)

    def _hand_over(self, receiver: _Receiver, name: str, value: float, iteration: int) -> None:
        try:
            receiver.receive(name, value, iteration)
        except Exception as error:  # noqa: BLE001 - a logger must not end the training
            self._tell_of(receiver.name, error)

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
        if name not in self._broken:
            self._broken.add(name)
            self._log.write(f"{name} failed, which is told once: {described(error)}", logging.ERROR)
