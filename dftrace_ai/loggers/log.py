"""Trackers with the pipeline in front of them: what a `Logger` and a list of them stand on."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import ConfigError, DftraceError
from dftrace_ai.loggers.delivery.delivery import Delivery
from dftrace_ai.loggers.delivery.in_process import InProcess
from dftrace_ai.loggers.delivery.own_process import OwnProcess
from dftrace_ai.loggers.interfaces.finding import logint_class
from dftrace_ai.loggers.pipeline import Pipeline, Routine, Subscriber
from dftrace_ai.loggers.records import Artifact
from dftrace_ai.loggers.routines.base import RoutineSettings
from dftrace_ai.loggers.routines.finding import routine_class
from dftrace_ai.loggers.run_place import place_of, rank_logs
from dftrace_ai.loggers.status_line import StatusLine
from dftrace_ai.loggers.system_metrics import SystemMetrics
from dftrace_ai.run import emitting
from dftrace_ai.run.run import current_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.interfaces.base import BaseLogint, RunFacts
    from dftrace_ai.loggers.records import Record, Status
    from dftrace_ai.loggers.routines.base import BaseLogger

__all__ = ["Entry", "Log"]

# Which program's own classes another process cannot import.
MAIN = "__main__"


@dataclass(frozen=True)
class Entry:
    """One interface of a config, with its tracker at work.

    Attributes:
        name: its key.
        config: its settings.
        facts: the run, as the tracker is told of it.
        delivery: to the tracker; None on ranks that do not log.
        logint: the interface, where it is in this process.
    """

    name: str
    config: EntryConfig
    facts: RunFacts | None
    delivery: Delivery | None
    logint: BaseLogint | None

    @classmethod
    def opened(cls, name: str, config: EntryConfig, run_name: str) -> Entry:
        """Begin an interface.

        Raises:
            ConfigError: there is no such interface or routine, or the run must (not) be there.
            LogDirectoryError: the run's directory cannot be written.
        """
        kind = logint_class(name)
        for key in config.loggers:
            routine_class(key)
        unknown = sorted(set(config.tracked_variables) - set(config.loggers))
        if unknown:
            raise ConfigError(
                f"logger.{name}: tracked_variables of {', '.join(map(repr, unknown))}, which "
                f"{'is' if len(unknown) == 1 else 'are'} not among its loggers"
            )
        if not rank_logs(config):
            return cls(name, config, None, None, None)
        facts = place_of(config, config.run_name or run_name)
        logint: BaseLogint | None = None
        if kind.own_process and not config.in_process and kind.__module__ != MAIN:
            delivery = Delivery(name, OwnProcess(kind, facts, config.limit_s), config.queue)
        else:
            logint = kind(facts)
            delivery = Delivery(name, InProcess(logint), config.queue)
        return cls(name, config, facts, delivery, logint)


class Log:
    """Takes what is logged for some interfaces, each value once for all of them.

    Args:
        entries: the interfaces.
        samples: whether this one samples the machine, too.

    Attributes:
        entries: the interfaces at work; none on ranks that do not log.
        iteration: number of the next iteration.
        epoch: number of the next epoch.
    """

    def __init__(self, entries: Sequence[Entry], *, samples: bool) -> None:
        self.entries = [entry for entry in entries if entry.delivery is not None]
        self.iteration = 0
        self.epoch = 0
        self.status: Status = "running"
        self._pid = os.getpid()
        self._ending = threading.Lock()
        self._line: StatusLine | None = None
        # For values that are logged by name, and not as tracked variables.
        self._direct: dict[str, BaseLogger] = {}
        self._pipeline = self._made(samples=samples)

    def log_iter(self, data: Mapping[str, Any], step: int | None) -> None:
        """Take an iteration."""
        if step is None:
            step = self.iteration
        self.iteration = step + 1
        if self._line is not None:
            self._line.iterations += 1
        if self.entries:
            self._pipeline.log_iter(data, step)

    def log_epoch(self, epoch: int | None) -> None:
        """Take the end of an epoch."""
        if epoch is None:
            epoch = self.epoch
        self.epoch = epoch + 1
        if self.entries:
            self._pipeline.log_epoch(epoch)

    def log(self, record: Record) -> None:
        """Deliver a record to everyone."""
        if self.entries:
            self._pipeline.log(record)

    def log_by(self, key: str, name: str, value: Any, step: int | None) -> None:
        """Have a value converted by a routine, whether or not it is configured."""
        if not self.entries:
            return
        logger = self._direct.get(key)
        if logger is None:
            settings = _settings(self.entries[0].config)
            logger = self._direct[key] = routine_class(key)(settings)
        self._pipeline.log_by(logger, name, value, self.step(step))

    def step(self, step: int | None) -> int:
        """Return a step that was given, or that of the last iteration."""
        return max(0, self.iteration - 1) if step is None else step

    def point(self, step: int | None) -> Any:
        """Return when and where it is now."""
        return self._pipeline.point(self.step(step))

    def wait(self) -> None:
        """Wait until everything is converted and delivered, within the limit."""
        if self.entries:
            self._pipeline.wait(self._limit_s())

    def end(self, status: Status, parts: Sequence[Log] = ()) -> None:
        """End everything, once; within the limit, all together.

        Args:
            status: how the run ends.
            parts: of the same entries, which may have taken something by themselves.
        """
        if self._pid != os.getpid() or not self._ending.acquire(blocking=False):
            return
        self.status = status
        limit_s = self._limit_s()
        until_s = time.monotonic() + limit_s
        if any("trace" in entry.config.attach for entry in self.entries):
            self._attach_trace()
        for log in (*parts, self):
            log.status = status
            log._pipeline.finish(until_s)
        deliveries = [entry.delivery for entry in self.entries if entry.delivery is not None]
        for delivery in deliveries:
            delivery.close(status, limit_s)
        for delivery in deliveries:
            delivery.settle(until_s)

    def forget(self) -> None:
        """Forget everything in a forked child: it is the parent's."""
        self._pipeline.forget()
        for entry in self.entries:
            if entry.delivery is not None:
                entry.delivery.forget()
        self.entries = []

    def _attach_trace(self) -> None:
        run = current_run()
        if run is not None and run.path is not None:
            run.flush()
            self.log(Artifact(Path(run.path).name, run.path, self.point(None)))

    def _limit_s(self) -> float:
        return max((entry.config.limit_s for entry in self.entries), default=0.0)

    def _made(self, *, samples: bool) -> Pipeline:
        routines: list[Routine] = []
        places: dict[tuple[str, RoutineSettings], int] = {}
        subscribers = []
        for entry in self.entries:
            variables: dict[int, frozenset[str] | None] = {}
            settings = _settings(entry.config)
            for key in entry.config.loggers:
                names = entry.config.tracked_variables.get(key)
                place = places.setdefault((key, settings), len(routines))
                if place == len(routines):
                    routines.append(Routine(routine_class(key)(settings), ()))
                logger, before = routines[place]
                routines[place] = Routine(logger, _union(before, names))
                variables[place] = None if names is None else frozenset(names)
            if entry.delivery is not None:
                subscribers.append(Subscriber(entry.delivery, variables))
        configs = [entry.config for entry in self.entries]
        moment = emitting.moment if any(entry.name == "trace" for entry in self.entries) else None
        intervals = [c.system_metrics_s for c in configs if c.system_metrics_s is not None]
        system = SystemMetrics(min(intervals), moment) if samples and intervals else None
        if any(config.status_line for config in configs):
            facts = self.entries[0].facts
            self._line = StatusLine("" if facts is None else facts.run_name)
        return Pipeline(
            routines,
            subscribers,
            most=max((config.queue for config in configs), default=1),
            sync_s=self._limit_s() if any(config.sync for config in configs) else None,
            moment=moment,
            on_epoch=None if self._line is None else self._line.show,
            sample=None if system is None else system.due,
        )


def _settings(config: EntryConfig) -> RoutineSettings:
    return RoutineSettings(
        gpu=config.gpu,
        windows=tuple(config.windows),
        bins=config.bins,
        fps=config.fps,
        video=config.video,
    )


def _union(before: tuple[str, ...] | None, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if before is None or names is None:
        return None
    return tuple(dict.fromkeys((*before, *names)))


class NotInProcessError(DftraceError, AttributeError):
    """A tracker's own object lives in another process."""
