"""A queue for one tracker, and the thread that empties it: the training waits for neither."""

from __future__ import annotations

import abc
import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.loggers.delivery.waiting import Bell, Limit
from dftrace_ai.masking import masked_text
from dftrace_ai.wording import LastWord, ToldOnce, counted, described, quoted, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dftrace_ai.loggers.delivery.keeping import Unsent
    from dftrace_ai.loggers.records import Record, Status
    from dftrace_ai.loggers.trackers.base import BaseLogint, RunFacts

# So long a fork waits for a tracker's call to end; one that lasts longer is not waited for again.
LONGEST_WAIT_S = 2.0
UNSURE = "and may not have kept or sent all of them"


class Standing(NamedTuple):
    """How many records were handed over, taken or refused, and taken whole; and how it ended."""

    # `fault` says why not all were taken, as far as the tracker knows by itself.

    sent: int = 0
    seen: int = 0
    taken: int = 0
    ended: bool = False
    fault: str = ""


class Tracker(abc.ABC):
    """Where records end: an interface here, or one in a process of its own."""

    # What it does not take lies on disk already.
    is_kept = False

    def start(self) -> None:  # noqa: B027 - there may be nothing to start
        """Do what has to be done on the thread that makes the loggers; does not take long."""

    @abc.abstractmethod
    def begin(self) -> None:
        """Begin the run; may take long, and may raise anything, as may the next two."""

    @abc.abstractmethod
    def take(self, record: Record) -> None:
        """Take a record."""

    @abc.abstractmethod
    def end(self, status: Status, limit: Limit) -> None:
        """End the run."""

    @abc.abstractmethod
    def standing(self) -> Standing:
        """Return how far it has come."""

    @abc.abstractmethod
    def unseen(self) -> list[Record]:
        """Let go of it, and return what it has not taken of what it was given; once."""

    @abc.abstractmethod
    def moved(self) -> bool:
        """Return whether it has got on since this was asked."""

    def abandon(self) -> None:  # noqa: B027 - a thread cannot be ended from outside
        """Let go of it, without waiting for more than a moment."""

    @abc.abstractmethod
    def forget(self) -> None:
        """Close what is the parent's, in a forked child."""


class TrackerProcessError(Exception):
    """The tracker's process is gone, or does not listen."""


class Mark:
    """Goes the way of the records, behind them, to so many trackers, for who waits for them."""

    def __init__(self, arrivals: int) -> None:
        self._left = list(range(arrivals))
        self._conditions: list[Callable[[], bool]] = []

    def arrive(self, is_seen: Callable[[], bool]) -> None:
        """Tell that all before it was handed to one tracker, and whether it is seen there."""
        self._conditions.append(is_seen)
        self._left.pop()

    def is_through(self) -> bool:
        """Return whether everything before it was seen by all trackers, or will be by none."""
        return not self._left and all(is_seen() for is_seen in self._conditions)


class Delivery:
    """Hands records to one tracker, on a thread of its own, in order."""

    # So many wait at most; more are lost, and counted. `thread` is None as long as there is none.

    def __init__(
        self, name: str, tracker: Tracker, most: int, unsent: Unsent | None = None
    ) -> None:
        self.name = name
        self._unsent = unsent
        # A signal handler may come in while something is kept.
        self._keeping = threading.RLock()
        self.tracker = tracker
        self.is_over = False
        self.thread: int | None = None
        self._most = most
        self._queue: deque[Record | Mark] = deque()
        # Of several threads that convert; never waited for by the training's.
        self._counting = threading.Lock()
        self._given = 0
        self._fault = ""
        self._is_gone = False
        self._bell = Bell()
        self._status: Status | None = None
        self._limit: Limit | None = None
        self._limit_s = 0.0
        self._told = ToldOnce()
        self._last_word = LastWord()
        try:
            tracker.start()
            threading.Thread(target=self._run, name=f"dftrace-{name}", daemon=True).start()
        except Exception as error:  # noqa: BLE001 - too many processes, threads or open files
            self._cannot_begin(error)

    def put(self, record: Record) -> None:
        """Have a record delivered; never waits. After the end it is none of this tracker's."""
        if self._status is not None:
            return
        with self._counting:
            self._given += 1
        if self.is_over:
            self._keep([record])
            return
        if len(self._queue) >= self._most:
            self._note("its queue is full")
            self._tell_of_full_queue()
            return
        self._queue.append(record)
        self._bell.ring()

    def put_mark(self, mark: Mark) -> None:
        """Have a mark arrive when all that was put before is seen by the tracker."""
        self._queue.append(mark)
        self._bell.ring()
        if self.is_over:
            self._let_marks_through()

    def lost(self) -> int:
        """Return how many of the records given so far the tracker has not taken."""
        return max(0, self._given - self.tracker.standing().taken)

    def close(self, status: Status, limit_s: float, first_s: float) -> None:
        """Begin to end with the status of the first call; `settle` comes next.

        It may take so many seconds without progress, at first `first_s`.
        """
        if self._status is None:
            self._limit_s = limit_s
            self._limit = Limit(limit_s, self.tracker.moved, first_s)
            self._status = status
        self._bell.ring_now()

    def settle(self) -> None:
        """Wait for the end, let go of the tracker, and tell what was lost, once."""
        limit = self._limit
        is_over = limit is not None and limit.wait_until(lambda: self.is_over)
        if not is_over and not self.tracker.standing().ended:
            self._note(f"it did not end in time (limit_s, {self._limit_s:g} s without progress)")
        self.is_over = True
        # At the end of a program two threads may come here.
        with self._keeping:
            self._keep(self.tracker.unseen())
            self._let_marks_through()
            if self._unsent is not None:
                self._unsent.end(self._status or "killed")
        if self.lost() or self._fault:
            self._last_word.say(self._tell)

    def forget(self) -> None:
        """Forget the tracker in a forked child: it is the parent's."""
        self._queue = deque()
        self._unsent = None
        self.is_over = True
        self._last_word.keep()
        self.tracker.forget()

    def _tell(self) -> None:
        standing = self.tracker.standing()
        # Many have a queue of their own inside, and send it while they end.
        lost, more = self.lost(), ""
        if standing.taken and not standing.ended:
            more = f"; it took {standing.taken:,} {UNSURE}"
        unsent = self._unsent
        if unsent is not None and unsent.kept:
            some = "they are" if unsent.kept >= lost else f"{unsent.kept:,} of them are"
            folder = quoted(str(unsent.path.parent))
            more += f"; {some} kept, and handed over by: dftrace runs --send {folder}"
        warn(
            "the tracker %s %s %s of %s: %s%s",
            quoted(self.name),
            "has not taken" if self.tracker.is_kept or (unsent and unsent.kept) else "lost",
            f"{lost:,}",
            counted(self._given, "record"),
            masked_text(standing.fault or self._fault or "unknown"),
            more,
        )

    def _keep(self, records: Iterable[Record]) -> None:
        if self._unsent is not None:
            with self._keeping:
                for record in records:
                    self._unsent.keep(record)

    def _note(self, fault: str) -> None:
        if not self._fault:
            self._fault = fault

    def _cannot_begin(self, error: BaseException) -> None:
        self._note(f"it could not begin: {_said(error)}")
        warn(
            "the tracker %s could not begin, and all else goes on without it: %s",
            quoted(self.name),
            _said(error),
        )
        self._stop()

    def _tell_of_full_queue(self) -> None:
        """Tell now: a server that hangs may do so for days, and a killed training tells nothing."""
        if self._told.first("full"):
            warn(
                "the tracker %s does not keep up: %s wait for it, as many as its queue holds, and "
                "what comes until it takes some is lost",
                quoted(self.name),
                counted(self._most, "record"),
            )

    def _stop(self) -> None:
        self.is_over = True
        self._let_marks_through()

    def _let_marks_through(self) -> None:
        with self._keeping:
            while (item := self._next()) is not None:
                if isinstance(item, Mark):
                    item.arrive(lambda: True)
                else:
                    self._keep([item])

    def _next(self) -> Record | Mark | None:
        try:
            return self._queue.popleft()
        except IndexError:
            return None

    def _run(self) -> None:
        self.thread = threading.get_ident()
        try:
            self.tracker.begin()
        except BaseException as error:  # noqa: BLE001 - a tracker may also ask for the exit
            self._cannot_begin(error)
            return
        while True:
            self._deliver()
            status = self._status
            if self.is_over or (status is not None and not self._queue):
                break
            self._bell.sleep(lambda: bool(self._queue) or self._status is not None)
        if status is not None and self._limit is not None and not self.is_over:
            try:
                self.tracker.end(status, self._limit)
            except BaseException as error:  # noqa: BLE001
                self._note(f"it could not end: {_said(error)}")
        self._stop()

    def _deliver(self) -> None:
        while not self.is_over and (item := self._next()) is not None:
            if isinstance(item, Mark):
                item.arrive(self._seen_so_far())
                continue
            try:
                self.tracker.take(item)
            except TrackerProcessError as error:
                self._lose_process(_said(error))
                self._keep(self.tracker.unseen())
            except BaseException as error:  # noqa: BLE001
                self._note(_said(error))

    def _lose_process(self, fault: str) -> None:
        """Tell now that nothing reaches the tracker any more: the training may go on for days."""
        self._note(fault)
        # What is lost in the end is told then.
        if self._is_gone or self._status is not None:
            return
        self._is_gone = True
        warn(
            "the tracker %s takes nothing more, and all else goes on without it: %s",
            quoted(self.name),
            fault,
        )

    def _seen_so_far(self) -> Callable[[], bool]:
        sent = self.tracker.standing().sent
        return lambda: self.is_over or self.tracker.standing().seen >= sent


def _said(error: BaseException) -> str:
    """Return what a tracker complains of; it may put keys and whole requests into its words."""
    said = str(error) if isinstance(error, TrackerProcessError) else described(error)
    return masked_text(said)


class InProcess(Tracker):
    """An interface that is called directly; `logint` is None until it has begun."""

    def __init__(self, kind: type[BaseLogint], run: RunFacts) -> None:
        self._kind = kind
        self._run = run
        self.logint: BaseLogint | None = None
        # The same, from before it begins.
        self._made: BaseLogint | None = None
        self._calls = _ForkBarrier()
        self._taken = self._seen = 0
        self._in_hand: Record | None = None
        self._ended = False
        self._standing = -1, False

    def begin(self) -> None:
        """Make and open it."""
        self._made = logint = self._kind(self._run)
        logint.open()
        self._calls.close_to_forks()
        self.logint = logint

    def take(self, record: Record) -> None:
        """Hand a record over."""
        if self.logint is None:
            raise RuntimeError("it has not begun")
        self._in_hand = record
        try:
            with self._calls:
                self.logint.take(record)
                self.logint.lull()
            self._taken += 1
        finally:
            self._in_hand = None
            self._seen += 1

    def unseen(self) -> list[Record]:
        """Return what it hangs in."""
        left, self._in_hand = self._in_hand, None
        return [] if left is None else [left]

    def end(self, status: Status, limit: Limit) -> None:
        """End the run at the tracker."""
        if self.logint is not None:
            self.logint.limit_s = limit.left_s()
            with self._calls:
                self.logint.flush()
                self.logint.finish(status)
        self._ended = True

    def standing(self) -> Standing:
        """Return how far it has come; what is wrong is raised."""
        return Standing(self._seen, self._seen, self._taken, self._ended)

    def moved(self) -> bool:
        """Return whether it has got on since this was asked."""
        before, self._standing = self._standing, (self._seen, self.logint is not None)
        return self._standing != before

    def forget(self) -> None:
        """Close what is the parent's, in a forked child."""
        if self._made is not None:
            self._made.forget()


class _ForkBarrier:
    """Entered for each call. Threads that fork wait for its end, and keep others out meanwhile."""

    # A lock that another thread holds while the process forks is held for ever in the child.
    # Trackers write to buffered files on the thread that calls them, and some of them close
    # these files in every child: a worker of a loader that is forked in the middle of a call
    # then never begins.
    def __init__(self) -> None:
        # Of who forks within a call it is his own.
        self._lock = threading.RLock()
        self._begun = 0
        self._given_up = 0

    def __enter__(self) -> None:
        """Wait for a fork to be over."""
        self._lock.acquire()
        self._begun += 1

    def __exit__(self, *raised: object) -> None:
        """Let forks happen."""
        self._lock.release()

    def close_to_forks(self) -> None:
        """Have forks wait from now on."""
        # Handlers that come last are called first before a fork: after the tracker has made its
        # own, no call waits for one of these.
        held = weakref.ref(self)

        def of_barrier(act: Callable[[_ForkBarrier], None]) -> Callable[[], None]:
            def handler() -> None:
                barrier = held()
                if barrier is not None:
                    act(barrier)

            return handler

        os.register_at_fork(
            before=of_barrier(_ForkBarrier._before_fork),
            after_in_parent=of_barrier(_ForkBarrier._after_fork),
        )

    def _before_fork(self) -> None:
        call = self._begun
        wait_s = 0.0 if call and call == self._given_up else LONGEST_WAIT_S
        if not self._lock.acquire(timeout=wait_s):
            self._given_up = call

    def _after_fork(self) -> None:
        # Another's where it was not waited for.
        with suppress(RuntimeError):
            self._lock.release()
