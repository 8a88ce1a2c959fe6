"""What all parts of a session of tensor inspection work with: its config, its logs, its records."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dftrace_ai.inspect.collecting.collector import DEFAULT_GROUP, Collector
from dftrace_ai.inspect.collecting.rings import Rings
from dftrace_ai.inspect.config import load
from dftrace_ai.inspect.errors import InspectAssertionError
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.inspect.output.log_files import LogNames, MainLog, StatisticsFile
from dftrace_ai.inspect.ranks.exchange import Groups, rank_of_process
from dftrace_ai.inspect.ranks.reduction import digest_of
from dftrace_ai.wording import ToldOnce, briefly, described

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterable

    from dftrace_ai.inspect.config.loading import ConfigSource
    from dftrace_ai.inspect.output.logger_interface import Statistics

__all__ = ["SessionState"]


class SessionState:
    """What lies open between `initialize` and `end_debug`."""

    def __init__(
        self,
        config_file: ConfigSource,
        log_dir: str | os.PathLike[str],
        iteration: int,
        *,
        statistics_logger: Any = None,
        tb_writer: Any = None,
        default_logging: bool = False,
    ) -> None:
        self.iteration = iteration
        self.rank = rank_of_process()
        self.config = load(config_file)
        self._said = ToldOnce()
        names = LogNames(log_dir, self.rank)
        self.log = MainLog(names)
        self._closing: list[Callable[[], None]] = [self.log.close]
        try:
            file = None
            if default_logging or (statistics_logger is None and tb_writer is None):
                file = StatisticsFile(
                    names.statistics, overwrite=names.overwrites, stamped=names.stamped
                )
                self._closing.insert(0, file.close)
            self.sinks = Sinks(self.log, statistics_logger, tb_writer, file)
            self._closing = [self.sinks.close, self.log.close]
        except BaseException:
            self.close()
            raise
        if file is not None:
            self.log.write(f"Default logging to file enabled at {log_dir}")
        self._tell_of_config(config_file)
        self.schedules = tuple(
            {
                observe.schedule
                for section in self.config.sections.values()
                for observe in section.observe
            }
        )
        """When ranks exchange records: the config alone decides."""
        self.groups = Groups(self.log.write)
        """The groups of ranks with which records are exchanged."""
        rules = digest_of(sorted(map(repr, self.schedules)))
        self.collector = Collector(Rings(self.say_once), self.groups, rules)
        self.outbox = Outbox(self.send)
        self.group: Any = None
        """The process group over which statistics are merged by default."""

    def _tell_of_config(self, config_file: object) -> None:
        if not self.config.given:
            if self.rank == 0:
                named = f": {config_file} does not exist" if config_file else ""
                self.log.write(f"No config file is used{named}.", logging.WARNING)
            return
        source = f"from {self.config.path}" if self.config.path else "from Python dictionary"
        self.log.write(f"Reading config {source}.")
        for problem in self.config.warnings:
            self.log.write(str(problem), logging.WARNING)
        if self.rank == 0:
            for name in self.config.disabled:
                self.log.write(f"Section {name} is not enabled.")
        self.log.write(f"Loaded configs for dict_keys({list(self.config.sections)}).")

    @property
    def rings(self) -> Rings:
        """Where records of tensors on other devices are made."""
        return self.collector.rings

    def send(self, statistics: Statistics) -> None:
        """Log the statistics of a tensor, whose turn has come."""
        self.sinks.send(statistics)

    def deliver(self, *, wait: bool = False) -> None:
        """Log what devices have made meanwhile; or wait for all of it."""
        self.rings.receive(wait=wait)
        if self.outbox.deliver():
            self.sinks.flush()

    def set_group(self, group: Any) -> None:
        """Set the group over which statistics are merged by default."""
        self.group = group
        self.collector.set_group(DEFAULT_GROUP, group)

    # What is told

    def say_once(self, key: Hashable, message: str, level: int = logging.INFO) -> None:
        """Write a line to the main log, once for each key."""
        if self._said.first(key):
            self.log.write(message, level)

    def warn(self, message: str) -> None:
        """Write a warning to the main log and to standard error."""
        self.log.write(message, logging.WARNING)

    def failed(self, layer: str, tensor: str, error: Exception) -> None:
        """Tell once that the statistics of a tensor could not be made."""
        self.broke(layer, f"the statistics of {tensor}", error)

    def broke(self, layer: str, what: str, error: Exception) -> None:
        """Tell once that something was not done for a layer."""
        # Torch goes on with pages of where it comes from.
        reason = briefly(error)
        self.say_once(
            ("failed", layer, what, type(error)),
            f"{layer}: {what} failed, which is told once: {reason}",
            logging.ERROR,
        )

    def close(self) -> None:
        """Close the files."""
        closing, self._closing = self._closing, []
        for close in closing:
            close()


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
    """A queue: what is logged first has to come first, though a later record may be there."""

    # Nothing is held: another thread may log, and so may the handler of a signal within a call.

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
