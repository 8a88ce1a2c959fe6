"""Trackers with the pipeline in front of them: what a `Logger` and a list of them stand on."""

from __future__ import annotations

import time
from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.attached import attach
from dftrace_ai.loggers.delivery.delivery import wait_until
from dftrace_ai.loggers.delivery.nesting import Nesting
from dftrace_ai.loggers.endings import unwatch
from dftrace_ai.loggers.entry import routes, settings_of
from dftrace_ai.loggers.pipeline import Pipeline
from dftrace_ai.loggers.records import MetricsRecord
from dftrace_ai.loggers.routines.finding import routine_class
from dftrace_ai.loggers.routines.metric import spread
from dftrace_ai.loggers.runs.log_files import Reached, reached
from dftrace_ai.loggers.status_line import StatusLine
from dftrace_ai.loggers.steps import Steps
from dftrace_ai.loggers.system_metrics import SystemMetrics
from dftrace_ai.run import emitting
from dftrace_ai.wording import ToldOnce, briefly, in_short, text_of, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dftrace_ai.loggers.delivery.delivery import Delivery
    from dftrace_ai.loggers.entry import Entry
    from dftrace_ai.loggers.records import Record, Status
    from dftrace_ai.loggers.routines.base import BaseLogger

__all__ = ["Log"]

Word = TypeVar("Word", bound=str)


class Log:
    """Takes what is logged for some interfaces, each value once for all of them.

    Args:
        entries: the interfaces.
        samples: whether this one samples the machine, too.

        parts: the same for each of its interfaces alone; they end with this one.

    Attributes:
        entries: the interfaces at work; none on ranks that do not log.
        status: how the run stands.
    """

    def __init__(
        self, entries: Sequence[Entry], *, samples: bool, parts: Sequence[Log] = ()
    ) -> None:
        self.entries = [entry for entry in entries if entry.delivery is not None]
        self.status: Status = "running"
        self._parts = parts
        self._owner: Log | None = None
        self.steps: Steps = Steps(self._reached)
        for part in parts:
            part._owner = self
            part.steps.others = self.steps
        self._calls, self._epochs = count(1), count(1)
        self._told = ToldOnce()
        # The first counts: with which status it ends, and until when that may take.
        self._ends: list[tuple[Status, float]] = []
        self._is_forgotten = self._is_let_go = False
        self._nesting = Nesting()
        # For values that are logged by name, and not as tracked variables.
        self._direct: dict[str, BaseLogger] = {}
        self._pipeline = self._made(samples=samples)

    def log_iter(self, data: Mapping[str, Any], step: Any) -> None:
        """Take an iteration."""
        number = self.steps.iteration(step)
        next(self._calls)
        if self.entries:
            self._pipeline.log_iter(data, number)

    def log_epoch(self, epoch: Any) -> None:
        """Take the end of an epoch."""
        number = self.steps.epoch(epoch)
        # Counted together, for that cannot be interrupted, and the epochs taken off.
        iterations = next(self._calls) - next(self._epochs)
        if self.entries:
            self._pipeline.log_epoch(number, iterations)

    def log_made(self, method: str, make: Callable[[], Record]) -> None:
        """Deliver a record to everyone; where it cannot be made of what was given, tell it once."""
        try:
            record = make()
        except Exception as error:  # noqa: BLE001 - a user's value, in his training
            self._refuse(method, error)
            return
        if self.entries:
            self._pipeline.log(record)

    def log_numbers(
        self, metrics: Mapping[str, Any], step: Any, prefix: str = "", *, counts: bool = False
    ) -> None:
        """Deliver numbers to everyone; what is no number is told once by its name.

        Args:
            metrics: numbers, or mappings of them, by name.
            step: their number, or None.
            prefix: what their names begin with.
            counts: whether a call without a step has a number of its own.
        """
        if not self.entries:
            return
        try:
            logger, given = self._routine("metric"), list(spread(metrics.items(), prefix))
        except Exception as error:  # noqa: BLE001 - a user's mapping, in his training
            self._refuse("log_metrics", error)
            return
        values: dict[str, float] = {}
        for name, value in given:
            try:
                values[name] = float(logger.take(value))
            except Exception as error:  # noqa: BLE001, PERF203 - a user's value, in his training
                self._pipeline.values.refuse(logger, name, error)
        if values:
            number = self.steps.call(step) if counts else self.steps.of_names(values, step)
            self._pipeline.log(MetricsRecord(values, self._pipeline.point(number)))

    def log_by(self, key: str, name: str, value: Any, step: int | None) -> None:
        """Have a value converted by a routine, whether or not it is configured."""
        if not self.entries:
            return
        try:
            logger = self._routine(key)
        except DftraceError as error:  # what it needs is not installed
            self._refuse(f"log_{key}", error)
            return
        self._pipeline.log_by(logger, text_of(name), value, self.steps.other(step))

    def known(self, what: str, value: Any, accepted: Sequence[Word], otherwise: Word) -> Word:
        """Return one of a few words; for what is none of them, which is told once, another."""
        for word in accepted:
            if value == word:
                return word
        if self._told.first("word", what):
            warn(
                "the %s %s is taken for %s; accepted: %s",
                what,
                in_short(value),
                otherwise,
                ", ".join(accepted),
            )
        return otherwise

    def point(self, step: Any) -> Any:
        """Return when and where it is now, of what is no number."""
        return self._pipeline.point(self.steps.other(step))

    def wait(self) -> None:
        """Wait until everything is converted and delivered, within the limit."""
        if self.entries:
            self._pipeline.wait(time.monotonic() + self._limit_s())

    def begin_end(self, status: Status) -> None:
        """Begin to end everything, once; what waits is delivered first. Does not wait.

        A signal handler may come here while it is being ended, and so may another thread: the
        first status counts.
        """
        if self._is_forgotten:
            return
        limit_s = self._limit_s()
        mine = (status, time.monotonic() + limit_s)
        self._ends.append(mine)
        if self._ends[0] is not mine:
            return
        for one in (self, *self._parts):
            one.status = status
            one._pipeline.close(may_begin=not self._is_let_go)

    def let_go(self, status: Status) -> None:
        """Begin to end what nobody has any more; a thread of ours waits for it.

        The collector may be anywhere, also where a lock is held that starting a thread needs.
        """
        self._is_let_go = True
        self.begin_end(status)

    def settle(self) -> None:
        """Wait for the end of what `begin_end` has begun, within the limit; tell what was lost."""
        with self._nesting.within() as may_wait:
            if may_wait and self._ends and not self._is_forgotten:
                self._settle(self._ends[0][1])

    def _settle(self, until_s: float) -> None:
        for one in (*self._parts, self):
            one._pipeline.settle(until_s)
        deliveries = self._deliveries()
        for delivery in deliveries:
            delivery.close(*self._closing())
        for delivery in deliveries:
            delivery.settle(until_s)
        unwatch(self)

    def end(self, status: Status) -> None:
        """End everything, once; within the limit, all together."""
        if self._is_ours():
            self.let_go(status)
            return
        self.begin_end(status)
        self.settle()

    def forget(self) -> None:
        """Forget everything in a forked child: it is the parent's."""
        self._is_forgotten = True
        for one in (self, *self._parts):
            one._is_forgotten = True
            one._pipeline.forget()
        for delivery in self._deliveries():
            delivery.forget()
        for one in (self, *self._parts):
            one.entries = []

    def _routine(self, key: str) -> BaseLogger:
        logger = self._direct.get(key)
        if logger is None:
            settings = settings_of(self.entries[0].config)
            logger = self._direct[key] = routine_class(key)(settings)
        return logger

    def _refuse(self, method: str, error: Exception) -> None:
        if self._told.first("refused", method):
            warn("%s: what it was given is not logged: %s", method, briefly(error))

    def _deliveries(self) -> list[Delivery]:
        return [entry.delivery for entry in self.entries if entry.delivery is not None]

    def _is_ours(self) -> bool:
        """Return whether this thread is one that would be waited for.

        A finalizer of the program runs wherever the collector is at work, and an interface or a
        routine of its own may call what it logs with.
        """
        here = get_ident()
        converting = (one._pipeline.thread for one in (self, *self._parts))
        delivering = (delivery.thread for delivery in self._deliveries())
        return here in (*converting, *delivering)

    def _closing(self) -> tuple[Status, float]:
        status, until_s = self._ends[0]
        return status, max(0.0, until_s - time.monotonic())

    def _on_converted(self) -> None:
        """End the trackers, when nothing more comes to them; the loggers may be gone by now."""
        if self._owner is not None:
            self._owner._on_converted()
        if self._ends and all(one._pipeline.is_over for one in (self, *self._parts)):
            for delivery in self._deliveries():
                delivery.close(*self._closing())
            if self._is_let_go:
                self.settle()

    def _reached(self) -> Reached:
        facts = self.entries[0].facts if self.entries else None
        if facts is None:
            return Reached()
        names = (facts.project, facts.run_name)
        return reached(facts.log_dir, facts.rank, names, facts.begun_ns)

    def _attach(self) -> None:
        """Keep with the run what is to be kept; its interfaces do so together."""
        if self._owner is None and self._ends:
            status, until_s = self._ends[0]
            for part in self._parts:
                wait_until(lambda part=part: part._pipeline.is_over, until_s)  # type: ignore[misc]
            attach(self.entries, self.point(None), status, until_s)

    def _limit_s(self) -> float:
        return max((entry.config.limit_s for entry in self.entries), default=0.0)

    def _made(self, *, samples: bool) -> Pipeline:
        routines, subscribers = routes(self.entries)
        configs = [entry.config for entry in self.entries]
        moment = emitting.moment if any(entry.name == "trace" for entry in self.entries) else None
        intervals = [c.system_metrics_s for c in configs if c.system_metrics_s is not None]
        system = SystemMetrics(min(intervals), moment) if samples and intervals else None
        line = None
        if any(config.status_line for config in configs):
            facts = self.entries[0].facts
            line = StatusLine("" if facts is None else facts.title)
        return Pipeline(
            routines,
            subscribers,
            most=max((config.queue for config in configs), default=1),
            sync_s=self._limit_s() if any(config.sync for config in configs) else None,
            moment=moment,
            on_epoch=None if line is None else line.show,
            sampler=system,
            last=self._attach if any(config.attach for config in configs) else None,
            on_end=self._on_converted,
        )


class NotInProcessError(DftraceError, AttributeError):
    """A tracker's own object lives in another process."""
