"""The way of a logged value: taken on the training's thread, converted and delivered on others.

It is one subject, since a value and the end of a run meet all along it: what is logged, by which
number and for whom; the queue between the threads; and how both threads and trackers end.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from difflib import get_close_matches
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.attached import attach
from dftrace_ai.loggers.delivery.delivery import Mark
from dftrace_ai.loggers.delivery.waiting import Bell, Nesting, wait_until
from dftrace_ai.loggers.endings import unwatch
from dftrace_ai.loggers.records import EPOCH, ITERATION, MetricsRecord, Point
from dftrace_ai.loggers.registry import routine_class
from dftrace_ai.loggers.routines.metric import MetricLogger, spread
from dftrace_ai.loggers.runs.log_files import Reached, reached
from dftrace_ai.loggers.steps import StatusLine, Steps
from dftrace_ai.loggers.system_metrics import SystemMetrics
from dftrace_ai.run import emitting
from dftrace_ai.wording import (
    VALUE_LETTERS,
    LastWord,
    ToldOnce,
    briefly,
    counted,
    described,
    in_short,
    quoted,
    shortened,
    text_of,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dftrace_ai.loggers.delivery.delivery import Delivery
    from dftrace_ai.loggers.entry import Entry
    from dftrace_ai.loggers.records import Axis, Metrics, Record, Status
    from dftrace_ai.loggers.routines.base import BaseLogger
    from dftrace_ai.loggers.routines.metric import Numbers

# With a killed process a tenth of a second is lost at most. To look more often costs a step more.
POLL_S = 0.08
# To wake a thread costs the caller more than all else here: between the calls of a training it
# does not sleep, only when there was none for so long.
LINGER_S = 2.0
# A thread that could not be started is tried again after so long.
AGAIN_S = 1.0
# A signal handler may log while a value is taken, and so may the value itself.
MOST_WITHIN = 2
# Beside the variables of a routine; they go to everyone who has the routine.
ALWAYS = ("gpu/", "system/")
EPOCH_PREFIX = "epoch/"
MISSING = object()

Word = TypeVar("Word", bound=str)
# In `log_iter` tuples are made by `tuple.__new__`: a named one's own is a function in Python, and
# each of those costs microseconds where the training has had the caches meanwhile.


class Routine(NamedTuple):
    """A routine, and the variables that it logs for anybody; None where the data says."""

    logger: BaseLogger
    names: tuple[str, ...] | None


class Subscriber(NamedTuple):
    """A tracker, and by routine the names that it gets; None for all."""

    delivery: Delivery
    variables: Mapping[int, frozenset[str] | None]


class Taken(NamedTuple):
    """What one call has taken: values by routine, and what is made into records of its own.

    Of the end of an epoch: how many iterations there were, and by `time.monotonic` when it was.
    """

    at: Point
    metrics: Sequence[tuple[int, Numbers]] = ()
    others: Sequence[tuple[BaseLogger, int | None, str, Any]] = ()
    direct: Sequence[Record] = ()
    epoch: tuple[int, float] | None = None


class Pipeline:
    """Takes what is logged for some interfaces, each value once for all of them, and ends them.

    The training's thread takes values and puts them into a queue, one of ours converts them, and
    each tracker has its own (`Delivery`). A list of loggers has one of these for all, and each of
    its loggers one, a part: parts end with their owner.
    """

    def __init__(
        self, entries: Sequence[Entry], *, samples: bool, parts: Sequence[Pipeline] = ()
    ) -> None:
        # None of them on ranks that do not log.
        self.entries = [entry for entry in entries if entry.delivery is not None]
        self.status: Status = "running"
        # Whether nothing more will be converted, and the number of the thread that converts.
        self.is_over = False
        self.thread: int | None = None
        self.steps: Steps = Steps(self._reached)
        self._parts = parts
        self._owner: Pipeline | None = None
        for part in parts:
            part._owner = self
            part.steps.others = self.steps
        configs = [entry.config for entry in self.entries]
        self._limit_s = max((config.limit_s for config in configs), default=0.0)
        self._most = max((config.queue for config in configs), default=1)
        self._syncs = any(config.sync for config in configs)
        self._attaches = any(config.attach for config in configs)
        # The place in the trace is asked for where a tracker writes there.
        traces = any(entry.name == "trace" for entry in self.entries)
        self._moment = emitting.moment if traces else None
        self._line: StatusLine | None = None
        if any(config.status_line for config in configs):
            facts = self.entries[0].facts
            self._line = StatusLine("" if facts is None else facts.title)
        self._routines: list[Routine] = []
        self._subscribers: list[Subscriber] = []
        self._route()
        # For values that are logged by name, and not as tracked variables.
        self._direct: dict[str, BaseLogger] = {}
        # Counted by `next`, and appended to, for neither can be interrupted.
        self._calls, self._epochs = count(1), count(1)
        self._lost: list[str] = []
        # The first counts: with which status it ends, and until when that may take.
        self._ends: list[tuple[Status, float]] = []
        self._queue: deque[Taken | Mark] = deque()
        self._bell = Bell()
        self._told = ToldOnce()
        self._last_word = LastWord()
        self._waiting, self._settling = Nesting(), Nesting()
        self._within = threading.local()
        self._seen: set[tuple[int, str]] = set()
        self._offered: tuple[str, ...] = ()
        self._closed = self._begun = False
        self._is_forgotten = self._is_let_go = False
        self._failed_s = -math.inf
        intervals = [c.system_metrics_s for c in configs if c.system_metrics_s is not None]
        self._system: SystemMetrics | None = None
        if samples and intervals:
            self._system = SystemMetrics(min(intervals), self._moment)
            self._begin()

    def _route(self) -> None:
        """Make the routines of all interfaces, those of equal settings once; and who gets what."""
        places: dict[tuple[object, ...], int] = {}
        for entry in self.entries:
            variables: dict[int, frozenset[str] | None] = {}
            settings = entry.config.of_routines()
            for key in entry.config.loggers:
                names = entry.config.tracked_variables.get(key)
                place = places.setdefault((key, settings), len(self._routines))
                if place == len(self._routines):
                    self._routines.append(Routine(routine_class(key)(entry.config), ()))
                logger, before = self._routines[place]
                self._routines[place] = Routine(logger, _union(before, names))
                variables[place] = None if names is None else frozenset(names)
            if entry.delivery is not None:
                self._subscribers.append(Subscriber(entry.delivery, variables))
        tracked = {name for routine in self._routines for name in routine.names or ()}
        for routine in self._routines:
            if isinstance(routine.logger, MetricLogger):
                routine.logger.apart |= tracked

    # What a training calls: each of these returns at once, and raises nothing.

    def log_iter(self, data: Mapping[str, Any], step: Any) -> None:
        """Take the tracked variables of an iteration."""
        number = self.steps.iteration(step)
        next(self._calls)
        if not self.entries:
            return
        try:
            taken = self._taken(data, number)
        except Exception as error:  # noqa: BLE001 - a user's mapping, in his training
            if self._told.first("data", type(data)):
                warn(
                    "log_iter was given a %s, of which nothing is logged: %s; accepted: a mapping "
                    "of names and values",
                    type(data).__name__,
                    described(error),
                )
            return
        self._put(taken)

    def log_epoch(self, epoch: Any) -> None:
        """Have what was logged since the epoch before added up."""
        number = self.steps.epoch(epoch)
        # Counted together, for that cannot be interrupted, and the epochs taken off.
        iterations = next(self._calls) - next(self._epochs)
        if self.entries:
            self._put(Taken(self._at(number, EPOCH), epoch=(iterations, time.monotonic())))

    def log_made(self, method: str, make: Callable[[], Record]) -> None:
        """Deliver a record to everyone; where it cannot be made of what was given, tell it once."""
        try:
            record = make()
        except Exception as error:  # noqa: BLE001 - a user's value, in his training
            self._refuse_call(method, error)
            return
        self._log(record)

    def log_numbers(
        self, metrics: Metrics, step: Any, prefix: str = "", *, counts: bool = False
    ) -> None:
        """Deliver numbers to everyone; what is no number is told once by its name."""
        # With `counts` a call without a step has a number of its own.
        if not self.entries:
            return
        try:
            logger, given = self._routine("metric"), list(spread(metrics.items(), prefix))
        except Exception as error:  # noqa: BLE001 - a user's mapping, in his training
            self._refuse_call("log_metrics", error)
            return
        values: dict[str, float] = {}
        for name, value in given:
            try:
                values[name] = float(logger.take(value))
            except Exception as error:  # noqa: BLE001, PERF203 - a user's value, in his training
                self._refuse(logger, name, error)
        if values:
            number = self.steps.call(step) if counts else self.steps.of_names(values, step)
            self._log(MetricsRecord(values, self._at(number)))

    def log_by(self, key: str, name: str, value: Any, step: Any) -> None:
        """Have a value converted by a routine, whether or not it is configured, for everyone."""
        if not self.entries:
            return
        try:
            logger = self._routine(key)
        except DftraceError as error:  # what it needs is not installed
            self._refuse_call(f"log_{key}", error)
            return
        name, number = text_of(name), self.steps.other(step)
        try:
            taken = self._taken_by(logger, value)
        except Exception as error:  # noqa: BLE001 - a user's value, in his training
            self._refuse(logger, name, error)
            return
        self._put(Taken(self._at(number), others=[(logger, None, name, taken)]))

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

    def point(self, step: Any) -> Point:
        """Return when and where it is now, of what is no number."""
        return self._at(self.steps.other(step))

    def _at(self, step: int, axis: Axis = ITERATION) -> Point:
        moment = None if self._moment is None else self._moment()
        return tuple.__new__(Point, (step, axis, time.time(), moment))

    def _taken(self, data: Mapping[str, Any], step: int) -> Taken:
        data.keys  # noqa: B018 - of what is no mapping, names may be found elsewhere
        metrics: list[tuple[int, Numbers]] = []
        others: list[tuple[BaseLogger, int | None, str, Any]] = []
        for index, (logger, names) in enumerate(self._routines):
            if isinstance(logger, MetricLogger):
                if names is None:
                    numbers, odd = logger.numbers(data)
                else:
                    numbers, odd = logger.numbers_of(names, data)
                for name, value in odd:
                    taken = self._take_one(logger, index, name, value)
                    if taken is not MISSING:
                        numbers[name] = taken
                metrics.append((index, numbers))
                continue
            for name in logger.untracked(data) if names is None else names:
                value = data.get(name, MISSING)
                taken = MISSING
                if value is not MISSING:
                    taken = self._take_one(logger, index, name, value)
                if taken is not MISSING:
                    others.append((logger, index, name, taken))
        if not self._offered:
            self._offered = tuple(map(str, data))
        return tuple.__new__(Taken, (self._at(step), metrics, others, (), None))

    def _take_one(self, logger: BaseLogger, index: int, name: str, value: Any) -> Any:
        self._seen.add((index, name))
        try:
            return self._taken_by(logger, value)
        except Exception as error:  # noqa: BLE001 - a user's value, in his training
            self._refuse(logger, name, error)
            return MISSING

    def _taken_by(self, logger: BaseLogger, value: Any) -> Any:
        """Return what a routine takes of a value, which may log, too, but not without end."""
        within = getattr(self._within, "count", 0)
        if within >= MOST_WITHIN:
            raise RecursionError("it logs values that log, too")
        self._within.count = within + 1
        try:
            return logger.take(value)
        finally:
            self._within.count = within

    def _refuse(self, logger: BaseLogger, name: object, error: Exception) -> None:
        """Tell that a value cannot be logged, once for each name."""
        if not self._told.first("value", logger.key, name):
            return
        said = briefly(error)
        if isinstance(error, TypeError | ValueError):
            said = said.removeprefix(f"{type(error).__name__}: ")
        warn(
            "%s %s cannot be logged: %s; accepted: %s",
            logger.key,
            quoted(shortened(text_of(name), VALUE_LETTERS)),
            said,
            logger.accepts,
        )

    def _refuse_call(self, method: str, error: Exception) -> None:
        if self._told.first("refused", method):
            warn("%s: what it was given is not logged: %s", method, briefly(error))

    def _routine(self, key: str) -> BaseLogger:
        logger = self._direct.get(key)
        if logger is None:
            logger = self._direct[key] = routine_class(key)(self.entries[0].config)
        return logger

    def _log(self, record: Record) -> None:
        if self.entries:
            self._put(Taken(record.at, direct=[record]))

    def _put(self, taken: Taken) -> None:
        if self._closed:
            if self._told.first("closed"):
                warn("something was logged after the run had ended, and is not kept")
            return
        if len(self._queue) >= self._most:
            self._lost.append("more than the queue holds waited")
            return
        self._queue.append(taken)
        if not self._begun:
            self._begin()
        self._bell.ring()
        if self._syncs:
            self.wait()

    def wait(self) -> None:
        """Wait until what was taken so far has been seen by everyone, within the limit."""
        # A thread that would be waited for, such as in a finalizer, does not wait.
        if not self.entries or self._is_waited_for(self):
            return
        until_s = time.monotonic() + self._limit_s
        with self._waiting.within() as may_wait:
            if not may_wait:
                return
            mark = Mark(len(self._subscribers))
            self._queue.append(mark)
            self._begin()
            self._bell.ring_now()
            wait_until(lambda: mark.is_through() or self.is_over or not self._begun, until_s)

    # How it ends. A signal handler may come here while it is being ended, and so may another
    # thread, and the collector, where a lock is held that starting a thread needs.

    def begin_end(self, status: Status) -> None:
        """Begin to end everything, once; what waits is delivered first. Does not wait."""
        if self._is_forgotten:
            return
        mine = (status, time.monotonic() + self._limit_s)
        self._ends.append(mine)
        if self._ends[0] is not mine:
            return
        for one in (self, *self._parts):
            one.status = status
            one._close(may_begin=not self._is_let_go)

    def let_go(self, status: Status) -> None:
        """Begin to end what nobody has any more; a thread of ours waits for it."""
        self._is_let_go = True
        self.begin_end(status)

    def settle(self) -> None:
        """Wait for the end of what `begin_end` has begun, within the limit; tell what was lost."""
        with self._settling.within() as may_wait:
            if not may_wait or not self._ends or self._is_forgotten:
                return
            until_s = self._ends[0][1]
            for one in (*self._parts, self):
                wait_until(lambda one=one: one.is_over, until_s)  # type: ignore[misc]
                one._tell_unconverted()
            self._close_deliveries()
            for delivery in self._deliveries():
                delivery.settle()
            unwatch(self)

    def end(self, status: Status) -> None:
        """End everything, once; within the limit, all together."""
        if self._is_waited_for(self, *self._parts):
            self.let_go(status)
            return
        self.begin_end(status)
        self.settle()

    def forget(self) -> None:
        """Forget everything in a forked child: it is the parent's."""
        deliveries = self._deliveries()
        for one in (self, *self._parts):
            one._is_forgotten = one._closed = one.is_over = True
            one._queue = deque()
            one._last_word.keep()
            one._told.first("closed")
        for delivery in deliveries:
            delivery.forget()
        for one in (self, *self._parts):
            one.entries = []

    def _close(self, *, may_begin: bool) -> None:
        """Take nothing more, and convert what waits; does not wait for it."""
        if self._closed:
            return
        if may_begin and (self._queue or self._attaches):
            self._begin()
        self._closed = True
        if self._begun:
            self._bell.ring_now()
        else:
            self._finish()

    def _deliveries(self) -> list[Delivery]:
        return [entry.delivery for entry in self.entries if entry.delivery is not None]

    def _close_deliveries(self) -> None:
        status, until_s = self._ends[0]
        for delivery in self._deliveries():
            delivery.close(status, self._limit_s, max(0.0, until_s - time.monotonic()))

    def _is_waited_for(self, *converting: Pipeline) -> bool:
        """Return whether this thread is one that would be waited for."""
        # A finalizer of the program runs wherever the collector is at work, and an
        # interface or a routine of its own may call what it logs with.
        delivering = (delivery.thread for delivery in self._deliveries())
        return threading.get_ident() in (*(one.thread for one in converting), *delivering)

    def _tell_unconverted(self) -> None:
        waiting = sum(isinstance(item, Taken) for item in tuple(self._queue))
        lost = Counter(tuple(self._lost))
        lost["they could not be converted in time"] += waiting
        left = lost.total()
        if left:
            why = "; ".join(f"{times:,} as {why}" for why, times in lost.items() if times)
            calls = counted(left, "logging call")
            self._last_word.say(lambda: warn("%s reached no tracker: %s", calls, why))

    def _reached(self) -> Reached:
        """Return how far a run has come that goes on."""
        facts = self.entries[0].facts if self.entries else None
        if facts is None:
            return Reached()
        names = (facts.project, facts.run_name)
        return reached(facts.log_dir, facts.rank, names, facts.begun_ns)

    # What runs on the thread that converts.

    def _begin(self) -> None:
        if self._begun or self._closed or time.monotonic() - self._failed_s < AGAIN_S:
            return
        # Set before: a signal handler may log while the thread is being started.
        self._begun = True
        try:
            threading.Thread(target=self._run, name="dftrace-loggers", daemon=True).start()
        except Exception as error:  # noqa: BLE001 - too many threads, or too little memory
            self._begun = False
            self._failed_s = time.monotonic()
            if self._told.first("thread"):
                warn(
                    "nothing is logged as long as no thread can be started: %s",
                    described(error),
                )

    def _run(self) -> None:
        self.thread = threading.get_ident()
        called_s = -math.inf
        while not self._closed or self._queue:
            if self._queue:
                called_s = time.monotonic()
            self._convert_all()
            self._take_samples()
            if self._closed:
                continue
            # Calls of a fast loop are converted together, and the loop is left alone meanwhile.
            self._bell.nap(POLL_S)
            if self._queue or self._closed or time.monotonic() - called_s < LINGER_S:
                continue
            left_s = None if self._system is None else max(0.0, self._system.left_s())
            self._bell.sleep(lambda: bool(self._queue) or self._closed, left_s)
            if not self._closed and not self._syncs:
                self._bell.nap(POLL_S)
        self._attach()
        self._finish()

    def _attach(self) -> None:
        """Keep with the run what is to be kept; the interfaces of an owner do so together."""
        if not self._attaches or self._owner is not None or not self._ends:
            return
        status, until_s = self._ends[0]
        for part in self._parts:
            wait_until(lambda part=part: part.is_over, until_s)  # type: ignore[misc]
        attach(self.entries, self.point(None), status, until_s)

    def _finish(self) -> None:
        """Tell what was missing; the trackers end when nothing more comes to them."""
        # The loggers may be gone by now.
        self._tell_missing()
        self.is_over = True
        for one in (self._owner, self):
            if one is not None and one._ends and all(p.is_over for p in (one, *one._parts)):
                one._close_deliveries()
                if one._is_let_go:
                    one.settle()

    def _take_samples(self) -> None:
        if self._system is None:
            return
        try:
            record = self._system.due()
        except Exception as error:  # noqa: BLE001 - what a machine hides in its own way
            self._system = None
            warn("the machine is not sampled any more: %s", described(error))
            return
        if record is not None:
            self._deliver_to_all(record)

    def _convert_all(self) -> None:
        while self._queue:
            item = self._queue[0]
            try:
                if isinstance(item, Mark):
                    for subscriber in self._subscribers:
                        subscriber.delivery.put_mark(item)
                else:
                    self._convert(item)
            except BaseException as error:  # noqa: BLE001 - a routine of the user's may ask to exit
                self._lost.append("they could not be converted")
                if self._told.first("conversion"):
                    warn(
                        "what was logged could not be converted: %s",
                        described(error),
                    )
            # Only now: who waits for its end waits for all of it.
            self._queue.popleft()

    def _convert(self, taken: Taken) -> None:
        for index, numbers in taken.metrics:
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
        if taken.epoch is not None:
            self._convert_epoch(taken.at, *taken.epoch)

    def _convert_epoch(self, at: Point, iterations: int, now_s: float) -> None:
        self._tell_missing()
        made: list[Record] = []
        for index, (logger, _) in enumerate(self._routines):
            records = self._made(logger, "", logger.epoch_records, at)
            self._deliver(index, records)
            made += records
        if self._line is not None:
            try:
                self._line.show(at, made, iterations, now_s)
            except Exception as error:  # noqa: BLE001 - a stream that the program has put there
                if self._told.first("line"):
                    warn(
                        "the state of the run cannot be printed: %s",
                        described(error),
                    )

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
                kept = _wanted(record, subscriber.variables[index])
                if kept is not None:
                    subscriber.delivery.put(kept)

    def _was_seen(self, index: int, name: str) -> bool:
        """Return whether there was a variable, or a mapping of numbers of that name."""
        return (index, name) in self._seen or any(
            place == index and seen.startswith(f"{name}/") for place, seen in tuple(self._seen)
        )

    def _tell_missing(self) -> None:
        if not self._offered:
            return
        for index, (logger, names) in enumerate(self._routines):
            for name in names or ():
                if not self._was_seen(index, name) and self._told.first(
                    "tracked", logger.key, name
                ):
                    near = get_close_matches(name, self._offered, 1)
                    hint = f"; did you mean {quoted(near[0])}?" if near else ""
                    warn(
                        "the tracked variable %s (%s) was in no data so far%s",
                        quoted(name),
                        logger.key,
                        hint,
                    )


def _union(before: tuple[str, ...] | None, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if before is None or names is None:
        return None
    return tuple(dict.fromkeys((*before, *names)))


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
