"""A session of tensor inspection: from `initialize` to `end_debug`."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from dftrace_ai.inspect.collecting.collector import DEFAULT_GROUP
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.inspect.ranks.exchange import distributed, rank_of_process
from dftrace_ai.inspect.session.explicit import ExplicitCalls
from dftrace_ai.inspect.session.silent_sections import SilentSections
from dftrace_ai.inspect.session.state import SessionState
from dftrace_ai.wording import described

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from dftrace_ai.inspect.config.loading import ConfigSource
    from dftrace_ai.inspect.output.logger_interface import Statistics

__all__ = ["Attached", "Session"]


class Attached(Protocol):
    """A model that `attach` has instrumented, as far as its session knows it."""

    @property
    def names(self) -> Sequence[str]:
        """The names of its layers."""

    def settle(self, iteration: int) -> None:
        """Be told that what was seen in an iteration is going to be logged."""

    def rolled(self, iteration: int) -> None:
        """Prepare for an iteration, after another one has ended."""

    def tell_what_ran(self) -> None:
        """Tell the session which layers ran with something to do."""

    def detach(self) -> None:
        """End the inspection."""


class Session(SessionState):
    """The state between `initialize` and `end_debug`, which goes on from step to step."""

    def __init__(
        self,
        config_file: ConfigSource,
        log_dir: str | os.PathLike[str],
        iteration: int,
        **loggers: Any,
    ) -> None:
        super().__init__(config_file, log_dir, iteration, **loggers)
        self.silent = SilentSections(self.config, iteration)
        """Which sections do something."""
        self.explicit = ExplicitCalls(self)
        self.due = self.explicit.due
        """The next due iteration of each layer and tensor that was given explicitly."""
        self.attached: list[Attached] = []
        """The models that are attached."""

    def send(self, statistics: Statistics) -> None:
        """Log the statistics of a tensor, whose turn has come."""
        self.silent.shown.add(statistics.layer)
        self.sinks.send(statistics)

    # Steps

    def collective_due(self, iteration: int) -> bool:
        """Tell whether ranks exchange records for an iteration: the config alone decides."""
        return any(schedule.due(iteration) for schedule in self.schedules)

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
