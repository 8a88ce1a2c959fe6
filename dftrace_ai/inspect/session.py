"""A session of tensor inspection: from `initialize` to `end_debug`."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.inspect import trace_events
from dftrace_ai.inspect.collector import Collector
from dftrace_ai.inspect.config import LayerInfo, Observe, layer_plan, load
from dftrace_ai.inspect.log_files import LogNames, MainLog, StatisticsFile
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.plain import merged_rows, neutral_row
from dftrace_ai.inspect.numerics.record import NEUTRAL, final_values, merge_all
from dftrace_ai.inspect.numerics.row_values import values_of_row
from dftrace_ai.inspect.outbox import ExplicitCall, Outbox
from dftrace_ai.inspect.reduction import (
    distributed,
    gathered,
    gathered_rows,
    is_last_rank,
    rank_of_process,
)
from dftrace_ai.inspect.rings import Awaited, Rings, elements_of
from dftrace_ai.inspect.sinks import Sinks

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable

    from torch import Tensor

    from dftrace_ai.inspect.config import Section
    from dftrace_ai.inspect.rings import DeviceRing

__all__ = ["DEFAULT_GROUP", "NEVER", "Session"]

NEVER = math.inf
"""The next due iteration of what is never due."""

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
        except BaseException:
            self.close()
            raise
        if file is not None:
            self.log.write(f"Default logging to file enabled at {log_dir}")
        self._tell_of_config(config_file)
        self.collector = Collector(Rings(self.say_once))
        self._outbox = Outbox(self.sinks.send)
        self._asked_in = iteration
        self.group: Any = None
        self.due: dict[tuple[str, str], float] = {}
        """The next due iteration of each layer and tensor that was given explicitly."""
        self._explicit: dict[tuple[str, str], Observe | None] = {}
        self._sections: dict[str, Section | None] = {}
        self._said: set[Hashable] = set()
        self.attached: list[Any] = []
        """What `attach` has instrumented: each has `arm`, `rolled` and `detach`."""
        self._schedules = tuple(
            {
                observe.schedule
                for section in self.config.sections.values()
                for observe in layer_plan(section, LayerInfo("", "")).observe
            }
        )

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
        self.say_once(
            ("failed", layer, tensor, type(error)),
            f"{layer}: the statistics of {tensor} failed, which is told once: "
            f"{type(error).__name__}: {error}",
            logging.ERROR,
        )

    # Explicit calls

    def log_tensor(
        self,
        layer: str,
        tensor: Tensor,
        tensor_name: str,
        *,
        skip_reduction: bool = False,
        group: Any = None,
        iteration: int | None = None,
    ) -> dict[str, Tensor]:
        """Log the statistics of a tensor if that is due; as `log_tensor_stats`."""
        observe = self._observe(layer, tensor_name)
        now = self.iteration if iteration is None else iteration
        if observe is None:
            self.due[layer, tensor_name] = NEVER
            return {}
        if iteration is None:
            following = observe.schedule.next_due(now)
            self.due[layer, tensor_name] = NEVER if following is None else following
        if not observe.schedule.due(now):
            return {}
        if iteration is None:
            # Called again in this step, it is due again.
            self.due[layer, tensor_name] = now
        exchanges, group, here = self._exchange(layer, skip_reduction, group)
        call = ExplicitCall(
            *(layer, tensor_name, observe.feature, observe.stats),
            *(now, self.rank, trace_events.now_ns(), Awaited()),
        )
        ring = self.rings.of(tensor)
        if ring is not None:
            return self._log_there(ring, tensor, call, exchanges=exchanges, group=group, here=here)
        record = collect(tensor) or NEUTRAL
        if exchanges:
            record = merge_all(rows[0] for rows in gathered([record], group))
        if not record[13] or not here:
            return {}
        call.awaited.record = record
        self._outbox.put(call)
        self.sinks.flush()
        return {
            stat: torch.tensor(value, dtype=torch.float32, device=tensor.device)
            for stat, value in final_values(record, observe.stats).items()
        }

    def _log_there(
        self,
        ring: DeviceRing,
        tensor: Tensor,
        call: ExplicitCall,
        *,
        exchanges: bool,
        group: Any,
        here: bool,
    ) -> dict[str, Tensor]:
        """Log a tensor whose record its device makes: the values stay there, and nothing waits."""
        if call.iteration != self._asked_in:
            # Whoever gives the iterations may never call `step`.
            self._asked_in = call.iteration
            self.rings.send()
            self._deliver()
        elements = elements_of(tensor)
        if elements is None and not exchanges:
            return {}
        asked = ring.add_row(neutral_row(tensor.device)) if elements is None else ring.add(elements)
        if asked is not None and exchanges:
            whole = merged_rows(gathered_rows(asked.row, group))
            asked = ring.add_row(whole) if here else None
        if asked is None:
            return {}
        values = values_of_row(asked.row, call.stats)
        self._outbox.put(call._replace(awaited=asked.awaited))
        return values

    def _observe(self, layer: str, tensor_name: str) -> Observe | None:
        key = layer, tensor_name
        if key not in self._explicit:
            section = self._section(layer)
            observe = section.base_observe(tensor_name) if section is not None else None
            self._explicit[key] = observe
            if observe is not None:
                self.log.write(
                    f"{layer}: Feature={observe.feature}, API=log_tensor_stats, "
                    f"TENSOR={tensor_name}: Called"
                )
        return self._explicit[key]

    def _section(self, layer: str) -> Section | None:
        if layer not in self._sections:
            info = LayerInfo(layer)
            self._sections[layer] = self.config.section_of(info, [info])
        return self._sections[layer]

    def _exchange(self, layer: str, skip_reduction: bool, group: Any) -> tuple[bool, Any, bool]:
        """Say whether ranks merge their records, which ranks, and whether this one logs."""
        if skip_reduction or distributed() is None:
            return False, None, True
        group = self.group if group is None else group
        if group is not None:
            return True, group, True
        self.say_once(
            ("no group", layer),
            f"{layer}: no reduction group is set; statistics are merged over all ranks and "
            "logged by the last one.",
            logging.WARNING,
        )
        return True, None, is_last_rank()

    # Steps

    def collective_due(self, iteration: int) -> bool:
        """Tell whether ranks exchange records for an iteration: the config alone decides."""
        return any(schedule.due(iteration) for schedule in self._schedules)

    def step(self) -> None:
        """Log what the iteration that ends has shown, and go on to the next one."""
        self.flush()
        self.iteration += 1
        self._asked_in = self.iteration
        for model in self.attached:
            model.rolled(self.iteration)

    def flush(self) -> None:
        """Log what was collected, as far as it is on the host."""
        merges = distributed() is not None
        if merges and self.attached:
            self.collector.ensure_group(DEFAULT_GROUP, self.group)
        for model in self.attached:
            model.settle(self.iteration)
        if self.attached and self.collective_due(self.iteration):
            with trace_events.FLUSH:
                self._outbox.put(
                    self.collector.end_step(
                        self.iteration, self.rank, self.collective_due if merges else None
                    )
                )
                self._deliver()
                self.sinks.flush()
        elif self.rings.busy:
            with trace_events.FLUSH:
                self.rings.send()
                self._deliver()
        if not self.attached:
            self.sinks.flush()

    def _deliver(self, *, wait: bool = False) -> None:
        """Log what devices have made meanwhile; or wait for all of it."""
        self.rings.receive(wait=wait)
        if self._outbox.deliver():
            self.sinks.flush()

    def set_group(self, group: Any) -> None:
        """Set the group over which statistics are merged by default."""
        self.group = group
        self.collector.set_group(DEFAULT_GROUP, group)

    def go_to(self, iteration: int) -> None:
        """Set the number of the present iteration."""
        self.iteration = self._asked_in = iteration
        self.due.clear()
        for model in self.attached:
            model.rolled(iteration)

    def end(self) -> None:
        """Log what is left, detach the models, close the files."""
        try:
            for bring in (self.flush, partial(self._deliver, wait=True)):
                self._brought(bring)
            self._tell_of_stalls()
        finally:
            for model in reversed(list(self.attached)):
                model.detach()
            self.close()

    def _brought(self, bring: Callable[[], None]) -> None:
        try:
            bring()
        except Exception as error:  # noqa: BLE001 - the rest has to be ended all the same
            self.log.write(f"what was left is lost: {type(error).__name__}: {error}", logging.ERROR)

    def _tell_of_stalls(self) -> None:
        if self.rings.stalls:
            self.log.write(
                f"Devices that were behind were waited for {self.rings.stalls} times, "
                f"{self.rings.stalled_ns / 1e6:.1f} ms in all."
            )

    def close(self) -> None:
        """Close the files."""
        for close in self._closing:
            close()
        self._closing = []
