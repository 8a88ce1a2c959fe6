"""A session of tensor inspection: from `initialize` to `end_debug`."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.collecting.collector import Collector
from dftrace_ai.inspect.collecting.rings import Rings
from dftrace_ai.inspect.config import LayerInfo, layer_plan, load
from dftrace_ai.inspect.errors import described
from dftrace_ai.inspect.explicit import ExplicitCalls
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.inspect.output.log_files import LogNames, MainLog, StatisticsFile
from dftrace_ai.inspect.output.outbox import Outbox
from dftrace_ai.inspect.output.sinks import Sinks, Statistics
from dftrace_ai.inspect.ranks.exchange import (
    Groups,
    distributed,
    rank_of_process,
)
from dftrace_ai.inspect.ranks.reduction import digest_of
from dftrace_ai.inspect.silent_sections import SilentSections

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable


__all__ = ["DEFAULT_GROUP", "Session"]

DEFAULT_GROUP = "default"
"""The key of the group over which attached layers are merged."""


class Session:
    """The state between `initialize` and `end_debug`.

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
        config_file: str | os.PathLike[str] | dict[str, Any] | None,
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
        self._schedules = tuple(
            {
                observe.schedule
                for section in self.config.sections.values()
                for observe in layer_plan(section, LayerInfo("", "")).observe
            }
        )
        self.groups = Groups(self.log.write)
        """The groups of ranks with which records are exchanged."""
        rules = digest_of(sorted(map(repr, self._schedules)))
        self.collector = Collector(Rings(self.say_once), self.groups, rules)
        self.silent = SilentSections(self.config, iteration)
        """Which sections do something."""
        self.outbox = Outbox(self._send)
        self.group: Any = None
        self.explicit = ExplicitCalls(self)
        self.due = self.explicit.due
        """The next due iteration of each layer and tensor that was given explicitly."""
        self._said: set[Hashable] = set()
        self.attached: list[Any] = []
        """What `attach` has instrumented: each has `names`, `settle`, `rolled` and `detach`."""

    def _tell_of_config(self, config_file: Any) -> None:
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

    def _send(self, statistics: Statistics) -> None:
        self.silent.shown.add(statistics.layer)
        self.sinks.send(statistics)

    @property
    def rings(self) -> Rings:
        """Where records of tensors on other devices are made."""
        return self.collector.rings

    def say_once(self, key: Hashable, message: str, level: int = logging.INFO) -> None:
        """Write a line to the main log, once for each key."""
        if key not in self._said:
            self._said.add(key)
            self.log.write(message, level)

    def warn(self, message: str) -> None:
        """Write a warning to the main log and to standard error."""
        self.log.write(message, logging.WARNING)

    def failed(self, layer: str, tensor: str, error: Exception) -> None:
        """Tell once that the statistics of a tensor could not be made."""
        # Torch goes on with pages of where it comes from.
        reason = described(error).partition("\n")[0]
        self.say_once(
            ("failed", layer, tensor, type(error)),
            f"{layer}: the statistics of {tensor} failed, which is told once: {reason}",
            logging.ERROR,
        )

    # Steps

    def collective_due(self, iteration: int) -> bool:
        """Tell whether ranks exchange records for an iteration: the config alone decides."""
        return any(schedule.due(iteration) for schedule in self._schedules)

    def step(self) -> None:
        """Log what the iteration that ends has shown, and go on to the next one."""
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 - a statistic must not end the training
            self.say_once(
                ("step", type(error)),
                f"the statistics of iteration {self.iteration} are lost, which is told once: "
                f"{described(error)}",
                logging.ERROR,
            )
        self.silent.stepped = True
        self.iteration += 1
        self.explicit.goes_on_to(self.iteration)
        for model in self.attached:
            model.rolled(self.iteration)

    def flush(self) -> None:
        """Log what was collected, as far as it is on the host."""
        merges = distributed() is not None
        observed = bool(self.attached) or self.collector.ends_with_step
        if merges:
            # The group may be up since a moment ago.
            self.rank = rank_of_process()
        if merges and observed:
            self.collector.ensure_group(DEFAULT_GROUP, self.group)
        for model in self.attached:
            model.settle(self.iteration)
        self.collector.selected.here = self.silent.bits()
        if self.collector.merging:
            with trace_events.FLUSH:
                self.collector.advance()
                self.deliver()
        if observed and self.collective_due(self.iteration):
            with trace_events.FLUSH:
                self.outbox.put(
                    self.collector.end_step(
                        self.iteration, self.rank, self.collective_due if merges else None
                    )
                )
                self.deliver()
                self.sinks.flush()
        elif self.rings.busy:
            with trace_events.FLUSH:
                self.rings.send()
                self.deliver()
        if not observed:
            self.sinks.flush()
        self.collector.left()

    def deliver(self, *, wait: bool = False) -> None:
        """Log what devices have made meanwhile; or wait for all of it."""
        self.rings.receive(wait=wait)
        if self.outbox.deliver():
            self.sinks.flush()

    def set_group(self, group: Any) -> None:
        """Set the group over which statistics are merged by default."""
        self.group = group
        self.collector.set_group(DEFAULT_GROUP, group)

    def go_to(self, iteration: int) -> None:
        """Set the number of the present iteration."""
        self.silent.jumps(self.iteration - 1, iteration)
        self.iteration = iteration
        self.explicit.goes_on_to(iteration)
        self.due.clear()
        for model in self.attached:
            model.rolled(iteration)

    def end(self) -> None:
        """Log what is left, detach the models, close the files."""
        try:
            for bring in (self.flush, self._finish_merging, partial(self.deliver, wait=True)):
                self._brought(bring)
            self._tell_of_stalls()
            self._brought(self._tell_of_silent)
        finally:
            for model in reversed(list(self.attached)):
                model.detach()
            self.close()

    def _brought(self, bring: Callable[[], None]) -> None:
        try:
            bring()
        except Exception as error:  # noqa: BLE001 - the rest has to be ended all the same
            self.log.write(f"what was left is lost: {described(error)}", logging.ERROR)

    def _finish_merging(self) -> None:
        while self.collector.merging:
            self.collector.advance()

    def _tell_of_silent(self) -> None:
        for model in self.attached:
            model.tell_what_ran()
        dist = distributed()
        self.silent.tell(
            self.log.write,
            self.iteration,
            self.explicit,
            rank=self.rank,
            alone=dist is None or dist.get_world_size() == 1,
            anywhere=self.collector.selected.anywhere,
        )

    def _tell_of_stalls(self) -> None:
        if self.rings.stalls:
            self.log.write(
                f"Devices that were behind were waited for {self.rings.stalls} times, "
                f"{self.rings.stalled_ns / 1e6:.1f} ms in all."
            )

    def close(self) -> None:
        """Close the files."""
        closing, self._closing = self._closing, []
        for close in closing:
            close()
