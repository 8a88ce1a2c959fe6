"""The way of a logged value: taken on the training's thread, converted and delivered on others."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.loggers.records import EPOCH, ITERATION, MetricsRecord, Point
from dftrace_ai.loggers.routines.metric import MetricLogger
from dftrace_ai.wording import ToldOnce, counted, described, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dftrace_ai.loggers.delivery.delivery import Delivery
    from dftrace_ai.loggers.records import Axis, Record
    from dftrace_ai.loggers.routines.base import BaseLogger

__all__ = ["Pipeline", "Routine", "Subscriber"]

_log = logging.getLogger("dftrace_ai")

POLL_S = 0.05
MISSING = object()
# Beside the variables of a routine; they go to everyone who has the routine.
ALWAYS = ("gpu/", "system/")
EPOCH_PREFIX = "epoch/"


class Routine(NamedTuple):
    """A routine, and the variables that it logs for anybody; None where the data says."""

    logger: BaseLogger
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Subscriber:
    """Who gets which records.

    Attributes:
        delivery: to the tracker.
        variables: by routine, the names that the tracker gets; None for all.
    """

    delivery: Delivery
    variables: Mapping[int, frozenset[str] | None]


class _Taken(NamedTuple):
    """What one call has taken: values by routine, and a call that makes records of the rest."""

    at: Point
    metrics: dict[int, dict[str, Any]]
    others: list[tuple[BaseLogger, int | None, str, Any]]
    direct: list[Record]
    epoch: bool = False


class Pipeline:
    """Takes data on the calling thread, and has it converted and delivered on another.

    Args:
        routines: what is logged.
        subscribers: who gets it.
        most: so many calls wait at most; what does not fit is lost, counted and told.
        sync_s: seconds that each call waits until everyone has taken what it logged; None not to
            wait.
        moment: returns the place in the trace, or None where no tracker writes there.
        on_epoch: called on the other thread when an epoch's records are delivered.
        sample: called there now and then; returns what is due of the system's metrics, if any.
    """

    def __init__(
        self,
        routines: Sequence[Routine],
        subscribers: Sequence[Subscriber],
        *,
        most: int,
        sync_s: float | None,
        moment: Callable[[], Any] | None,
        on_epoch: Callable[[Point, Sequence[Record]], None] | None = None,
        sample: Callable[[], Record | None] | None = None,
    ) -> None:
        self._routines = routines
        self._subscribers = subscribers
        self._most = most
        self._sync_s = sync_s
        self._moment = moment
        self._on_epoch = on_epoch
        self._sample = sample
        self._queue: deque[_Taken] = deque()
        self._lost = 0
        self._told = ToldOnce()
        self._seen: set[tuple[int, str]] = set()
        self._offered: tuple[str, ...] = ()
        self._over = False
        self._thread: threading.Thread | None = None
        if sample is not None:
            self._begin()

    def point(self, step: int, axis: Axis = ITERATION) -> Point:
        """Return when and where it is now."""
        moment = None if self._moment is None else self._moment()
        return Point(step, axis, time.time(), moment)

    def log_iter(self, data: Mapping[str, Any], step: int) -> None:
        """Take the tracked variables of an iteration."""
        metrics: dict[int, dict[str, Any]] = {}
        others: list[tuple[BaseLogger, int | None, str, Any]] = []
        for index, routine in enumerate(self._routines):
            logger = routine.logger
            names = logger.untracked(data) if routine.names is None else routine.names
            if isinstance(logger, MetricLogger):
                metrics[index] = self._numbers(logger, names, data)
                continue
            for name in names:
                value = data.get(name, MISSING)
                if value is MISSING:
                    continue
                self._seen.add((index, name))
                try:
                    others.append((logger, index, name, logger.take(value)))
                except Exception as error:  # noqa: BLE001 - a user's value, in his training
                    self._refuse(logger, name, error)
        if not self._offered:
            self._offered = tuple(map(str, data))
        self._put(_Taken(self.point(step), metrics, others, []))

    def _numbers(
        self, logger: MetricLogger, names: Iterable[str], data: Mapping[str, Any]
    ) -> dict[str, Any]:
        found = {}
        for name in names:
            value = data.get(name, MISSING)
            if type(value) is not float:
                if value is MISSING:
                    continue
                try:
                    value = logger.take(value)
                except Exception as error:  # noqa: BLE001 - a user's value, in his training
                    self._refuse(logger, name, error)
                    continue
            found[name] = value
        return found

    def log_epoch(self, epoch: int) -> None:
        """Have what was logged since the epoch before added up."""
        self._put(_Taken(self.point(epoch, EPOCH), {}, [], [], epoch=True))

    def log(self, *records: Record) -> None:
        """Have records delivered to everyone."""
        self._put(_Taken(records[0].at, {}, [], list(records)))

    def log_by(self, logger: BaseLogger, name: str, value: Any, step: int) -> None:
        """Have a value converted by a routine, and delivered to everyone."""
        try:
            taken = logger.take(value)
        except Exception as error:  # noqa: BLE001 - a user's value, in his training
            self._refuse(logger, name, error)
            return
        self._put(_Taken(self.point(step), {}, [(logger, None, name, taken)], []))

    def finish(self, until_s: float) -> None:
        """Convert what waits, then stop; waits until then at most, by `time.monotonic`."""
        self._tell_missing()
        self._over = True
        if self._thread is not None:
            while self._queue and self._thread.is_alive() and time.monotonic() < until_s:
                time.sleep(0.001)
        elif self._queue:
            self._convert_all()
        left = len(self._queue) + self._lost
        if left:
            _log.warning(
                "%s could not be converted in time, and reached no tracker",
                counted(left, "logging call"),
            )

    def wait(self, limit_s: float) -> None:
        """Wait until what was taken so far is converted and delivered, so many seconds at most."""
        until_s = time.monotonic() + limit_s
        while self._queue and time.monotonic() < until_s:
            time.sleep(0.0005)
        for subscriber in self._subscribers:
            subscriber.delivery.wait(max(0.0, until_s - time.monotonic()))

    def forget(self) -> None:
        """Forget everything in a forked child: it is the parent's."""
        self._queue = deque()
        self._over = True

    def _put(self, taken: _Taken) -> None:
        if self._over:
            return
        if len(self._queue) >= self._most:
            self._lost += 1
            return
        self._queue.append(taken)
        if self._thread is None:
            self._begin()
        if self._sync_s is not None:
            self.wait(self._sync_s)

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="dftrace-loggers", daemon=True)
        self._thread = thread
        thread.start()

    def _run(self) -> None:
        while True:
            self._convert_all()
            if self._over and not self._queue:
                return
            record = None if self._sample is None else self._sample()
            if record is not None:
                self._deliver_to_all(record)
            time.sleep(0 if self._sync_s is not None else POLL_S)

    def _convert_all(self) -> None:
        while self._queue:
            self._convert(self._queue[0])
            if self._queue:
                self._queue.popleft()

    def _convert(self, taken: _Taken) -> None:
        for index, numbers in taken.metrics.items():
            logger = self._routines[index].logger
            if numbers and isinstance(logger, MetricLogger):
                self._seen.update((index, name) for name in numbers)
                self._deliver(index, self._made(logger, "", logger.together, numbers, taken.at))
            self._deliver(index, self._made(logger, "", logger.iteration_records, taken.at))
        for logger, place, name, value in taken.others:
            made = self._made(logger, name, logger.records, name, value, taken.at)
            if place is None:
                for record in made:
                    self._deliver_to_all(record)
            else:
                self._deliver(place, made)
        for record in taken.direct:
            self._deliver_to_all(record)
        if taken.epoch:
            self._convert_epoch(taken.at)

    def _convert_epoch(self, at: Point) -> None:
        self._tell_missing()
        made: list[Record] = []
        for index, (logger, _) in enumerate(self._routines):
            records = self._made(logger, "", logger.epoch_records, at)
            self._deliver(index, records)
            made += records
        if self._on_epoch is not None:
            self._on_epoch(at, made)

    def _made(
        self, logger: BaseLogger, name: str, make: Callable[..., Iterable[Record]], *given: Any
    ) -> list[Record]:
        try:
            return list(make(*given))
        except Exception as error:  # noqa: BLE001 - a user's value or a library's encoder
            self._refuse(logger, name, error)
            return []

    def _deliver_to_all(self, record: Record) -> None:
        for subscriber in self._subscribers:
            subscriber.delivery.put(record)

    def _deliver(self, index: int, records: Iterable[Record]) -> None:
        for record in records:
            for subscriber in self._subscribers:
                if index not in subscriber.variables:
                    continue
                wanted = _wanted(record, subscriber.variables[index])
                if wanted is not None:
                    subscriber.delivery.put(wanted)

    def _refuse(self, logger: BaseLogger, name: str, error: Exception) -> None:
        if self._told.first(logger.key, name):
            said = str(error) if isinstance(error, TypeError | ValueError) else described(error)
            _log.warning(
                "%s %s cannot be logged: %s; accepted: %s",
                logger.key,
                quoted(name),
                said,
                logger.accepts,
            )

    def _tell_missing(self) -> None:
        from difflib import get_close_matches

        if not self._offered:
            return
        for index, (logger, names) in enumerate(self._routines):
            for name in names or ():
                if (index, name) not in self._seen and self._told.first(logger.key, name):
                    near = get_close_matches(name, self._offered, 1)
                    hint = f"; did you mean {quoted(near[0])}?" if near else ""
                    _log.warning(
                        "the tracked variable %s (%s) was in no data so far%s",
                        quoted(name),
                        logger.key,
                        hint,
                    )


def _wanted(record: Record, names: frozenset[str] | None) -> Record | None:
    """Return what of a record is of these variables; None for nothing."""
    if names is None:
        return record
    if isinstance(record, MetricsRecord):
        kept = {name: value for name, value in record.values.items() if _is_of(name, names)}
        if len(kept) == len(record.values):
            return record
        return MetricsRecord(kept, record.at) if kept else None
    name = getattr(record, "name", None)
    return record if name is None or _is_of(name, names) else None


def _is_of(name: str, names: frozenset[str]) -> bool:
    if name in names or name.startswith(ALWAYS):
        return True
    plain = name.removeprefix(EPOCH_PREFIX)
    while plain:
        if plain in names:
            return True
        plain = plain.rpartition("/")[0]
    return False
