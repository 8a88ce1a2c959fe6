"""Where statistics go: loggers of the user, TensorBoard, the statistics file and the trace."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect.errors import InspectAssertionError
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.wording import ToldOnce, described

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.inspect.output.log_files import MainLog, StatisticsFile
    from dftrace_ai.inspect.output.logger_interface import Statistics

__all__ = ["Sinks"]


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
        if self._told.first(name):
            self._log.write(f"{name} failed, which is told once: {described(error)}", logging.ERROR)
