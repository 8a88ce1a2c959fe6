"""What all parts of a session of tensor inspection work with: its config, its logs, its records."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.collecting.collector import DEFAULT_GROUP, Collector
from dftrace_ai.inspect.collecting.rings import Rings
from dftrace_ai.inspect.config import load, observed_by
from dftrace_ai.inspect.output.log_files import LogNames, MainLog, StatisticsFile
from dftrace_ai.inspect.output.outbox import Outbox
from dftrace_ai.inspect.output.sinks import Sinks
from dftrace_ai.inspect.ranks.exchange import Groups, rank_of_process
from dftrace_ai.inspect.ranks.reduction import digest_of
from dftrace_ai.wording import ToldOnce, briefly

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable

    from dftrace_ai.inspect.config.reading.file import ConfigSource
    from dftrace_ai.inspect.output.logger_interface import Statistics

__all__ = ["SessionState"]


class SessionState:
    """What lies open between `initialize` and `end_debug`.

    Args:
        config_file: as for `initialize`.
        log_dir: root of the log directories.
        iteration: the first step.
        statistics_logger: as for `initialize`.
        tb_writer: as for `initialize`.
        default_logging: write the statistics file in any case.

    Raises:
        InspectError: the config or an argument is not accepted; nothing is left open.
        OSError: a log cannot be opened.
    """

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
                for observe in observed_by(section)
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
