"""A session of tensor inspection: from `initialize` to `end_debug`, by steps and explicit calls."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from dftrace_ai.inspect.collecting.collector import DEFAULT_GROUP, Collector
from dftrace_ai.inspect.collecting.rings import Awaited, LateValues, Rings
from dftrace_ai.inspect.config import LayerInfo, load
from dftrace_ai.inspect.errors import InspectTypeError
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.plain import merged_rows, neutral_row
from dftrace_ai.inspect.numerics.record import NEUTRAL, final_values, merge_all
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.inspect.output.log_files import LogNames, MainLog, StatisticsFile
from dftrace_ai.inspect.output.sinks import Outbox, Sinks, Statistics
from dftrace_ai.inspect.ranks.exchange import (
    Groups,
    distributed,
    gathered,
    gathered_rows,
    is_last_rank,
    rank_of_process,
)
from dftrace_ai.inspect.ranks.reduction import digest_of
from dftrace_ai.inspect.session.namespaces import UserNamespaces
from dftrace_ai.inspect.session.silent_sections import SilentSections
from dftrace_ai.run import emitting
from dftrace_ai.wording import ToldOnce, briefly, described

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from torch import Tensor

    from dftrace_ai.inspect.collecting.rings import DeviceRing
    from dftrace_ai.inspect.config import Observe
    from dftrace_ai.inspect.config.loading import ConfigSource
    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.run.emitting import Moment

NEVER = math.inf
"""The next due iteration of what is never due."""


class Attached(Protocol):
    """A model that `attach` has instrumented, as far as its session knows it."""

    @property
    def names(self) -> Sequence[str]:
        """The names of its layers."""

    def settle(self) -> None:
        """Be told that what was seen up to now is going to be logged."""

    def rolled(self, iteration: int) -> None:
        """Prepare for an iteration, after another one has ended."""

    def tell_what_ran(self) -> None:
        """Tell the session which layers ran with something to do."""

    def detach(self) -> None:
        """End the inspection."""


class Session:
    """What lies open between `initialize` and `end_debug`, and goes on from step to step."""

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
        self.log_dir = log_dir
        self.config = load(config_file)
        self._said = ToldOnce()
        names = LogNames(log_dir, self.rank)
        self.log = MainLog(names)
        file = None
        try:
            if default_logging or (statistics_logger is None and tb_writer is None):
                file = StatisticsFile(
                    names.statistics, overwrite=names.overwrites, stamped=names.stamped
                )
            self.sinks = Sinks(self.log, statistics_logger, tb_writer, file)
        except BaseException:
            if file is not None:
                file.close()
            self.log.close()
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
        self.outbox = Outbox(self._send)
        self.group: Any = None
        """The process group over which statistics are merged by default."""
        self.silent = SilentSections(self.config, iteration)
        """Which sections do something."""
        self.namespaces = UserNamespaces(self.config, self.silent)
        self.explicit = ExplicitCalls(self)
        self.due = self.explicit.due
        """The next due iteration of each layer and tensor that was given explicitly."""
        self.attached: list[Attached] = []
        """The models that are attached."""

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

    def _send(self, statistics: Statistics) -> None:
        self.silent.shown.add(statistics.layer)
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

    # Steps

    def collective_due(self, iteration: int) -> bool:
        """Tell whether ranks exchange records for an iteration: the config alone decides."""
        return any(schedule.due(iteration) for schedule in self.schedules)

    def step(self) -> None:
        """Log what the iteration that ends has shown, and go on to the next one."""
        try:
            self.flush()
            self.namespaces.each("step")
        except Exception as error:  # noqa: BLE001 - a statistic must not end the training
            self.say_once(
                ("step", type(error)),
                f"the statistics of iteration {self.iteration} are lost, which is told once: "
                f"{described(error)}",
                logging.ERROR,
            )
        self.silent.stepped = True
        self._goes_on_to(self.iteration + 1)

    def _goes_on_to(self, iteration: int) -> None:
        self.iteration = iteration
        self.explicit.asked_in = iteration
        for model in self.attached:
            model.rolled(iteration)

    def flush(self) -> None:
        """Log what was collected, as far as it is on the host."""
        merges = distributed() is not None
        observed = bool(self.attached) or self.collector.ends_with_step
        if merges:
            # The group may be up since a moment ago.
            self.rank = rank_of_process()
        if merges and observed:
            self.collector.set_group(DEFAULT_GROUP, self.group, anew=False)
        for model in self.attached:
            model.settle()
        self.collector.selected.here = self.silent.bits
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

    def go_to(self, iteration: int) -> None:
        """Set the number of the present iteration."""
        self.silent.jumps(self.iteration - 1, iteration)
        self.due.clear()
        self._goes_on_to(iteration)

    def end(self) -> None:
        """Log what is left, detach the models, close the files."""
        try:
            ended = partial(self.namespaces.each, "end_debug")
            for bring in (
                self.flush,
                self._finish_merging,
                partial(self.deliver, wait=True),
                ended,
            ):
                self._brought(bring)
            self._tell_of_stalls()
            self._brought(self._tell_of_silent)
        finally:
            for model in reversed(list(self.attached)):
                model.detach()
            self.sinks.close()
            self.log.close()

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


class ExplicitCall(NamedTuple):
    """An explicit call for a tensor whose record may come later."""

    layer: str
    tensor: str
    feature: str  # which feature asked for it
    stats: Sequence[str]  # the statistics, in the order of the config
    iteration: int  # of the call
    rank: int
    moment: Moment  # of the call
    awaited: Awaited  # has the record

    def has_come(self) -> bool:
        """Tell whether the record is on the host."""
        return self.awaited.record is not None

    def statistics(self) -> Iterator[Statistics]:
        """Yield the statistics; nothing where no rank had an element."""
        record = self.awaited.record
        if record is not None and record.n_total:
            values = final_values(record, self.stats)
            yield Statistics(
                *(self.layer, self.tensor, self.feature, self.iteration),
                *(values, record, self.moment, self.rank),
            )


class Exchange(NamedTuple):
    """With whom ranks merge the records of an explicit call."""

    merges: bool  # whether they do
    group: Any = None  # which ranks; None is all
    logs: bool = True  # whether this rank logs what comes of it


class ExplicitCalls:
    """The explicit calls of a session: statistics of tensors that the training gives by itself."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due: dict[tuple[str, str], float] = {}
        """The next due iteration of each layer and tensor that was given."""
        self.asked_in = session.iteration
        """The iteration of the last call, or that `step` has come to."""
        self._observed: dict[tuple[str, str], Observe | None] = {}

    def log(
        self,
        layer: str,
        tensor: Tensor,
        tensor_name: str,
        *,
        skip_reduction: bool = False,
        group: Any = None,
        iteration: int | None = None,
    ) -> dict[str, Tensor]:
        """Log the statistics of a tensor if that is due; as `api.log_tensor_stats`."""
        observe = self._observe(layer, tensor_name)
        now = self._session.iteration if iteration is None else iteration
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
        self._session.silent.logged.add(layer)
        exchange = self._exchange(layer, skip_reduction, group)
        call = ExplicitCall(
            *(layer, tensor_name, observe.feature, observe.stats),
            *(now, self._session.rank, emitting.moment(), Awaited()),
        )
        ring = self._session.rings.of(tensor)
        if ring is not None:
            return self._log_there(ring, tensor, call, exchange)
        record = self._record(call, tensor, exchange)
        if record is None or not record.n_total:
            return {}
        call.awaited.record = record
        self._session.outbox.put(call)
        self._session.sinks.flush()
        device = "cpu" if tensor.is_meta else tensor.device
        return {
            stat: torch.scalar_tensor(value, dtype=torch.float32, device=device)
            for stat, value in final_values(record, observe.stats).items()
        }

    def _record(self, call: ExplicitCall, tensor: Tensor, exchange: Exchange) -> Record | None:
        """Return what this rank logs of a tensor, None where another one does."""
        record, logs = NEUTRAL, exchange.logs
        try:
            record = collect(tensor) or NEUTRAL
        except Exception as error:  # noqa: BLE001 - a statistic must not end the training
            self._tell_unless_complex(call, tensor, error)
        if exchange.merges:
            # The other ranks wait for this one, whatever it has.
            try:
                record = merge_all(rows[0] for rows in gathered([record], exchange.group))
            except Exception as error:  # noqa: BLE001 - other ranks must not end it, either
                self._session.groups.lost(exchange.group, error)
                logs = True
        _refuse_complex(tensor)
        return record if logs else None

    def _tell_unless_complex(self, call: ExplicitCall, tensor: Tensor, error: Exception) -> None:
        if not tensor.is_complex():
            self._session.failed(call.layer, call.tensor, error)

    def _log_there(
        self, ring: DeviceRing, tensor: Tensor, call: ExplicitCall, exchange: Exchange
    ) -> dict[str, Tensor]:
        """Log a tensor whose record its device makes: the values stay there, and nothing waits."""
        if call.iteration != self.asked_in:
            # Whoever gives the iterations may never call `step`.
            self.asked_in = call.iteration
            self._session.rings.send()
            self._session.deliver()
        elements = None
        try:
            elements = ring.elements_of(tensor)
        except InspectTypeError as error:
            self._tell_unless_complex(call, tensor, error)
        if elements is None and not exchange.merges:
            _refuse_complex(tensor)
            return {}
        asked = ring.add_row(neutral_row(tensor.device)) if elements is None else ring.add(elements)
        if asked is not None and exchange.merges:
            try:
                whole = merged_rows(gathered_rows(asked.row, exchange.group))
            except Exception as error:  # noqa: BLE001 - other ranks must not end the training
                self._session.groups.lost(exchange.group, error)
            else:
                asked = ring.add_row(whole) if exchange.logs else None
        _refuse_complex(tensor)
        if asked is None:
            return {}
        self._session.outbox.put(call._replace(awaited=asked))
        return LateValues(asked, call.stats, tensor.device)

    def _observe(self, layer: str, tensor_name: str) -> Observe | None:
        key = layer, tensor_name
        if key not in self._observed:
            info = LayerInfo(layer)
            section = self._session.config.section_of(info, [info])
            observe = section.base_observe(tensor_name) if section is not None else None
            self._session.silent.given[key] = section
            self._observed[key] = observe
            if observe is not None:
                self._session.log.write(
                    f"{layer}: Feature={observe.feature}, API=log_tensor_stats, "
                    f"TENSOR={tensor_name}: Called"
                )
        return self._observed[key]

    def _exchange(self, layer: str, skip_reduction: bool, group: Any) -> Exchange:
        group = self._session.group if group is None else group
        if skip_reduction or not self._session.groups.usable(group):
            return Exchange(merges=False)
        if group is not None:
            return Exchange(merges=True, group=group)
        self._session.say_once(
            ("no group", layer),
            f"{layer}: no reduction group is set; statistics are merged over all ranks and "
            "logged by the last one.",
            logging.WARNING,
        )
        return Exchange(merges=True, logs=is_last_rank())


def _refuse_complex(tensor: Tensor) -> None:
    """Raise for a complex tensor: after the exchange, for which other ranks wait."""
    if tensor.is_complex():
        raise InspectTypeError("a complex tensor has no statistics; take those of its parts")
