"""When collectives end: as their works say, or when somebody has waited for them.

Nothing is registered with torch: a callback would have to take the GIL on a thread of the backend,
which aborts a program that ends while a collective is under way, and would have streams of a GPU
wait for each other.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.run.emitting import ApartSpan

# What is said where a span's end is not that of its collective.
ENQUEUED: Final = {"until": "enqueued"}
WAITED: Final = {"until": "waited"}
DROPPED: Final = {"until": "dropped"}
REMOVED: Final = {"until": "removed"}
NOBODY_WAITED: Final[dict[str, float]] = {"waited_us": 0}

# A work that is younger may be on its way to whoever asked for it.
YOUNG_NS: Final = 1_000_000_000

# Between two looks at what is under way passes an eighth of the time since the latest began.
LOOK_S: Final = (0.0002, 0.005)


class Wait(NamedTuple):
    """A thread stands in a wait."""

    since_ns: int  # by the monotonic clock
    thread: int

    @classmethod
    def begun(cls) -> Wait:
        """Return that of the calling thread, which begins now."""
        return cls(time.monotonic_ns(), threading.get_native_id())

    def told(self) -> dict[str, float]:
        """Return what a span says that ends while somebody waits for it."""
        waited_us = (time.monotonic_ns() - self.since_ns) / 1000
        by = {} if self.thread == os.getpid() else {"waited_by": self.thread}
        return {"waited_us": waited_us, **by}


class _UnderWay:
    """A collective that has begun; its work is held, so that whoever waits for it is recognised."""

    __slots__ = ("future", "looked_ns", "since_ns", "span", "wait", "work")

    def __init__(self, work: Any, span: ApartSpan | None, future: Any = None) -> None:
        self.work = work
        self.future = future
        self.span: Any = span
        self.wait: Wait | None = None
        self.since_ns = self.looked_ns = time.monotonic_ns()

    def references(self) -> int:
        return sys.getrefcount(self.work)

    def told(self, standing: Wait | None) -> dict[str, float]:
        """Return what is said of an end that was found by looking."""
        late = {"late_us": (time.monotonic_ns() - self.looked_ns) / 1000}
        # Who stands in torch waits maybe for this one.
        if (wait := self.wait or standing) is not None:
            return late | wait.told()
        if self.references() > _OURS_ALONE:
            return late | NOBODY_WAITED  # whoever holds it in Python would be seen waiting
        return late


_OURS_ALONE: Final = _UnderWay(object(), None).references()


class Ends:
    """The collectives that are under way, and a thread that looks while there are any."""

    # The handler of a signal may have collectives, too, as one that writes a checkpoint does: no
    # lock of Python's is held by what it may come into.
    def __init__(self) -> None:
        # By identity of the work: those that say when they are done, and those that do not.
        self.telling: dict[int, _UnderWay] = {}
        self._silent: dict[int, _UnderWay] = {}
        # Threads that wait in torch, where it is not seen for which.
        self._standing: dict[int, Wait] = {}
        self._looker: threading.Thread | None = None
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_asleep = self._is_over = False
        atexit.register(self.stop)

    def follow(self, span: ApartSpan, work: Any, future: Any) -> None:
        """Have a span end with a work's future; for None somebody has to wait for the work."""
        if future is None:
            self._let_go_of_dropped()
            self._silent[id(work)] = _UnderWay(work, span)
        elif future.done():
            span.end(NOBODY_WAITED, _error_of(future))
        else:
            self.telling[id(work)] = _UnderWay(work, span, future)
            self._have_looked()

    def settle(self) -> None:
        """End what is done by now."""
        standing = next(iter(list(self._standing.values())), None)
        # The training goes on by the future, and may be over before the work counts as completed.
        for key, one in list(self.telling.items()):
            now_ns = time.monotonic_ns()
            if one.future.done():
                # First: the run may end as soon as it is gone from here. A second end does nothing.
                one.span.end(one.told(standing), _error_of(one.future))
                self.telling.pop(key, None)
            else:
                one.looked_ns = now_ns

    def stop(self) -> None:
        """Look no more: the interpreter ends, or this is removed. What is done by now has ended."""
        atexit.unregister(self.stop)
        self._is_over = True
        self._calls.put(None)
        looker, self._looker = self._looker, None
        if looker is not None and looker is not threading.current_thread() and looker.is_alive():
            looker.join()
        self.settle()

    def give_up(self) -> None:
        """End everything: nobody is told of waits from now on."""
        self.stop()
        for under_way in (self.telling, self._silent):
            while under_way:
                under_way.popitem()[1].span.end(REMOVED)

    def forget(self) -> None:
        """In a forked child: what is under way is the parent's, as is the thread that looks."""
        self.telling.clear()
        self._silent.clear()
        self._standing.clear()
        self._looker = None

    def seen_by(
        self, wait: Callable[..., Any], of_others: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return what stands in the place of a work's wait, and of one that is not followed."""
        telling, silent = self.telling, self._silent

        def seen(work: Any, *args: Any, **kwargs: Any) -> Any:
            key = id(work)
            one = telling.get(key) or silent.get(key)
            if one is None:
                return of_others(work, *args, **kwargs)
            begun = Wait.begun()
            if one.wait is None:
                one.wait = begun
            error: type[BaseException] | None = None
            try:
                return wait(work, *args, **kwargs)
            except BaseException as raised:
                error = type(raised)
                raise
            finally:
                if telling.pop(key, None) is not None:
                    one.span.end(begun.told(), error)
                elif silent.pop(key, None) is not None:
                    one.span.end(WAITED | begun.told(), error)

        return seen

    def by_future(self, wait: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what stands in the place of a future's wait."""

        def waited(future: Any) -> Any:
            return self.within(partial(wait, future))

        return waited

    def within(self, wait: Callable[[], Any]) -> Any:
        """Wait in torch, where it is not seen for which collective."""
        if not self.telling:
            return wait()
        begun = Wait.begun()
        self._standing[begun.thread] = begun
        try:
            return wait()
        finally:
            self.settle()
            self._standing.pop(begun.thread, None)

    def _let_go_of_dropped(self) -> None:
        now_ns = time.monotonic_ns()
        for key, one in list(self._silent.items()):
            dropped = one.references() <= _OURS_ALONE and now_ns - one.since_ns > YOUNG_NS
            if dropped and self._silent.pop(key, None) is not None:
                one.span.end(DROPPED)

    def _have_looked(self) -> None:
        if self._looker is None and not self._is_over:
            # Also in a forked child: there the parent's may be in any state. Looked up now, as the
            # thread is: gevent may have patched both, and a greenlet that waited in a queue of the
            # system would have the whole program wait.
            self._calls = queue.SimpleQueue()
            self._looker = threading.Thread(target=self._look, name="dftrace ends", daemon=True)
            try:
                self._looker.start()
            except RuntimeError:
                # The interpreter ends, or there are too many: the run's end settles what is done.
                self._looker = None
        if self._is_asleep:
            self._is_asleep = False
            self._calls.put(None)

    def _look(self) -> None:
        calls = self._calls
        shortest, longest = LOOK_S
        while not self._is_over:
            self._is_asleep = True
            if not self.telling and not self._is_over:
                calls.get()
            self._is_asleep = False
            pause = shortest
            while self.telling and not self._is_over:
                time.sleep(pause)
                self.settle()
                latest = max((one.since_ns for one in list(self.telling.values())), default=0)
                pause = min(max((time.monotonic_ns() - latest) / 8e9, shortest), longest)


def _error_of(future: Any) -> type[BaseException] | None:
    try:
        future.value()
    except Exception as error:  # noqa: BLE001 - it is the collective's, and goes to whoever waits
        return type(error)
    return None
