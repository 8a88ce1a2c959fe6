"""The way of a logged value: taken on the training's thread, converted and delivered on others."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.delivery.bell import Bell
from dftrace_ai.loggers.delivery.delivery import Mark, wait_until
from dftrace_ai.loggers.delivery.nesting import Nesting
from dftrace_ai.loggers.records import EPOCH, ITERATION, Point
from dftrace_ai.loggers.routines.metric import MetricLogger
from dftrace_ai.loggers.routing import wanted
from dftrace_ai.loggers.value_taking import Taken, ValueTaking
from dftrace_ai.wording import LastWord, ToldOnce, counted, described, quoted, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dftrace_ai.loggers.records import Axis, Record
    from dftrace_ai.loggers.routines.base import BaseLogger
    from dftrace_ai.loggers.routing import Routine, Subscriber
    from dftrace_ai.loggers.system_metrics import Sampler
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["Pipeline"]

# With a killed process a tenth of a second is lost at most. To look more often costs a step more.
POLL_S = 0.08
# To wake a thread costs the caller more than all else here: between the calls of a training it
# does not sleep, only when there was none for so long.
LINGER_S = 2.0
# A thread that could not be started is tried again after so long.
AGAIN_S = 1.0
MISSING = object()
# In `log_iter` tuples are made by `tuple.__new__`: a named one's own is a function in Python, and
# each of those costs microseconds where the training has had the caches meanwhile.


class Pipeline:
    """Takes data on the calling thread, and has it converted and delivered on another.

    Args:
        routines: what is logged.
        subscribers: who gets it.
        most: so many calls wait at most; what does not fit is lost, counted and told.
        sync_s: seconds that each call waits until everyone has taken what it logged; None not to
            wait.
        moment: returns the place in the trace, or None where no tracker writes there.
        on_epoch: called on the other thread when an epoch's records are delivered, with how many
            iterations there were when it ended, and when that was.
        sampler: looked at there, if any.
        last: called there after `close`; delivers what comes last, and raises nothing.
        on_end: called when everything is converted after `close`.

    Attributes:
        is_over: whether nothing more will be converted.
        thread: number of the thread that converts; None as long as there is none.
        values: takes them, and tells which cannot be logged.
    """

    def __init__(
        self,
        routines: Sequence[Routine],
        subscribers: Sequence[Subscriber],
        *,
        most: int,
        sync_s: float | None,
        moment: Callable[[], Any] | None,
        on_epoch: Callable[[Point, Sequence[Record], int, float], None] | None = None,
        sampler: Sampler | None = None,
        last: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.is_over = False
        self.thread: int | None = None
        self._routines = routines
        self._subscribers = subscribers
        self._most = most
        self._sync_s = sync_s
        self._moment = moment
        self._on_epoch = on_epoch
        self._sampler = sampler
        self._last = last
        self._on_end = on_end
        self._queue: deque[Taken | Mark] = deque()
        self._bell = Bell()
        # Appended to, for that cannot be interrupted.
        self._lost: list[str] = []
        self._told = ToldOnce()
        self._last_word = LastWord()
        self._nesting = Nesting()
        self._seen: set[tuple[int, str]] = set()
        self._offered: tuple[str, ...] = ()
        self.values = ValueTaking()
        self._closed = False
        self._begun = False
        self._failed_s = -math.inf
        if sampler is not None:
            self._begin()

    def point(self, step: int, axis: Axis = ITERATION) -> Point:
        """Return when and where it is now."""
        moment = None if self._moment is None else self._moment()
        return tuple.__new__(Point, (step, axis, time.time(), moment))

    def log_iter(self, data: Mapping[str, Any], step: int) -> None:
        """Take the tracked variables of an iteration."""
        try:
            taken = self._taken(data, step)
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

    def _taken(self, data: Mapping[str, Any], step: int) -> Taken:
        data.keys  # noqa: B018 - of what is no mapping, names may be found elsewhere
        metrics: list[tuple[int, JsonObject]] = []
        others: list[tuple[BaseLogger, int | None, str, Any]] = []
        for index, (logger, names) in enumerate(self._routines):
            if isinstance(logger, MetricLogger):
                if names is None:
                    found, odd = logger.numbers(data)
                else:
                    found, odd = logger.numbers_of(names, data)
                for name, value in odd:
                    self._take_one(logger, index, name, value, found)
                metrics.append((index, found))
                continue
            for name in logger.untracked(data) if names is None else names:
                value = data.get(name, MISSING)
                if value is not MISSING:
                    found = {}
                    self._take_one(logger, index, name, value, found)
                    others += [(logger, index, name, taken) for taken in found.values()]
        if not self._offered:
            self._offered = tuple(map(str, data))
        return tuple.__new__(Taken, (self.point(step), metrics, others, (), None))

    def _take_one(
        self, logger: BaseLogger, index: int, name: str, value: Any, found: JsonObject
    ) -> None:
        self._seen.add((index, name))
        try:
            found[name] = self.values.taken(logger, value)
        except Exception as error:  # noqa: BLE001 - a user's value, in his training
            self.values.refuse(logger, name, error)

    def log_epoch(self, epoch: int, iterations: int) -> None:
        """Have what was logged since the epoch before added up, of so many iterations so far."""
        self._put(Taken(self.point(epoch, EPOCH), epoch=(iterations, time.monotonic())))

    def log(self, *records: Record) -> None:
        """Have records delivered to everyone."""
        self._put(Taken(records[0].at, direct=records))

    def log_by(self, logger: BaseLogger, name: str, value: Any, step: int) -> None:
        """Have a value converted by a routine, and delivered to everyone."""
        try:
            taken = self.values.taken(logger, value)
        except Exception as error:  # noqa: BLE001 - a user's value, in his training
            self.values.refuse(logger, name, error)
            return
        self._put(Taken(self.point(step), others=[(logger, None, name, taken)]))

    def close(self, *, may_begin: bool = True) -> None:
        """Take nothing more, and convert what waits. Does not wait.

        Args:
            may_begin: whether a thread may be started for it, if there is none yet.
        """
        if self._closed:
            return
        if may_begin and (self._queue or self._last is not None):
            self._begin()
        self._closed = True
        if self._begun:
            self._bell.ring_now()
        else:
            self._end()

    def settle(self, until_s: float) -> None:
        """Wait until everything is converted, and tell what was not, once.

        Args:
            until_s: by `time.monotonic`.
        """
        wait_until(lambda: self.is_over, until_s)
        waiting = sum(isinstance(item, Taken) for item in tuple(self._queue))
        lost = Counter(tuple(self._lost))
        lost["they could not be converted in time"] += waiting
        left = lost.total()
        if left:
            why = "; ".join(f"{count:,} as {why}" for why, count in lost.items() if count)
            calls = counted(left, "logging call")
            self._last_word.say(lambda: warn("%s reached no tracker: %s", calls, why))

    def wait(self, until_s: float) -> None:
        """Wait until what was taken so far has been seen by everyone, and until then at most.

        On a thread that would be waited for, such as in a finalizer, it returns at once.
        """
        delivering = (subscriber.delivery.thread for subscriber in self._subscribers)
        if threading.get_ident() in (self.thread, *delivering):
            return
        with self._nesting.within() as may_wait:
            if not may_wait:
                return
            mark = Mark(len(self._subscribers))
            self._queue.append(mark)
            self._begin()
            self._bell.ring_now()
            wait_until(lambda: mark.is_through() or self.is_over or not self._begun, until_s)

    def forget(self) -> None:
        """Forget everything in a forked child: it is the parent's."""
        self._queue = deque()
        self._closed = self.is_over = True
        self._last_word.keep()
        self._told.first("closed")

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
        if self._sync_s is not None:
            self.wait(time.monotonic() + self._sync_s)

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
            self._bell.sleep(lambda: bool(self._queue) or self._closed, self._left_s())
            if not self._closed and self._sync_s is None:
                self._bell.nap(POLL_S)
        if self._last is not None:
            self._last()
        self._end()

    def _end(self) -> None:
        self._tell_missing()
        self.is_over = True
        if self._on_end is not None:
            self._on_end()

    def _left_s(self) -> float | None:
        return None if self._sampler is None else max(0.0, self._sampler.left_s())

    def _take_samples(self) -> None:
        if self._sampler is None:
            return
        try:
            record = self._sampler.due()
        except Exception as error:  # noqa: BLE001 - what a machine hides in its own way
            self._sampler = None
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
        if self._on_epoch is not None:
            try:
                self._on_epoch(at, made, iterations, now_s)
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
            self.values.refuse(logger, name, error)
            return []

    def _deliver_to_all(self, record: Record) -> None:
        for subscriber in self._subscribers:
            subscriber.delivery.put(record)

    def _deliver(self, index: int, records: Iterable[Record]) -> None:
        for record in records:
            for subscriber in self._subscribers:
                if index not in subscriber.variables:
                    continue
                kept = wanted(record, subscriber.variables[index])
                if kept is not None:
                    subscriber.delivery.put(kept)

    def _was_seen(self, index: int, name: str) -> bool:
        """Return whether there was a variable, or a mapping of numbers of that name."""
        return (index, name) in self._seen or any(
            place == index and seen.startswith(f"{name}/") for place, seen in tuple(self._seen)
        )

    def _tell_missing(self) -> None:
        from difflib import get_close_matches

        if not self._offered:
            return
        for index, (logger, names) in enumerate(self._routines):
            for name in names or ():
                if not self._was_seen(index, name) and self._told.first(logger.key, name):
                    near = get_close_matches(name, self._offered, 1)
                    hint = f"; did you mean {quoted(near[0])}?" if near else ""
                    warn(
                        "the tracked variable %s (%s) was in no data so far%s",
                        quoted(name),
                        logger.key,
                        hint,
                    )
