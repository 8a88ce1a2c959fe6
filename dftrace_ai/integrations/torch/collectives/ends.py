"""When collectives end: as their works say, or when somebody has waited for them.

Nothing is registered with torch: a callback would have to take the GIL on a thread of the backend,
which aborts a program that ends while a collective is under way, and would have streams of a GPU
wait for each other.
"""

from __future__ import annotations

import atexit
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.run.emitting import ApartSpan

__all__ = ["ENQUEUED", "Ends"]

# What is said where a span's end is not that of its collective.
ENQUEUED: Final = {"until": "enqueued"}
WAITED: Final = {"until": "waited"}
DROPPED: Final = {"until": "dropped"}
REMOVED: Final = {"until": "removed"}

# A work that is younger may be on its way to whoever asked for it.
YOUNG_S: Final = 1.0

# Between two looks at what is under way passes an eighth of the time since the latest began.
LOOK_S: Final = (0.0002, 0.005)


class _UnderWay:
    """A collective that has begun; its work is held, so that whoever waits for it is recognised."""

    __slots__ = ("future", "since", "span", "work")

    def __init__(self, work: Any, span: ApartSpan | None, future: Any = None) -> None:
        self.work = work
        self.future = future
        self.span: Any = span
        self.since = time.monotonic()

    def references(self) -> int:
        return sys.getrefcount(self.work)


_OURS_ALONE: Final = _UnderWay(object(), None).references()


class Ends:
    """The collectives that are under way, and a thread that looks while there are any.

    The handler of a signal may have collectives, too, as one that writes a checkpoint does: no lock
    of Python's is held by what it may come into.
    """

    def __init__(self) -> None:
        # By identity of the work: those that say when they are done, and those that do not.
        self._telling: dict[int, _UnderWay] = {}
        self._silent: dict[int, _UnderWay] = {}
        self._looker: threading.Thread | None = None
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_asleep = self._is_over = False
        atexit.register(self.stop)

    def follow(self, span: ApartSpan, work: Any, future: Any) -> None:
        """Have a span end with a work.

        Args:
            span: begun before it.
            work: what the caller may wait for.
            future: of the work, which says when it is done; None where somebody has to wait for it.
        """
        if future is None:
            self._let_go_of_dropped()
            self._silent[id(work)] = _UnderWay(work, span)
        elif future.done():
            span.end(None, _error_of(future))
        else:
            self._telling[id(work)] = _UnderWay(work, span, future)
            self._have_looked()

    def settle(self) -> None:
        """End what is done by now."""
        # The training goes on by the future, and may be over before the work counts as completed.
        for key, one in list(self._telling.items()):
            if one.future.done():
                # First: the run may end as soon as it is gone from here. A second end does nothing.
                one.span.end(None, _error_of(one.future))
                self._telling.pop(key, None)

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
        for under_way in (self._telling, self._silent):
            while under_way:
                under_way.popitem()[1].span.end(REMOVED)

    def forget(self) -> None:
        """In a forked child: what is under way is the parent's, as is the thread that looks."""
        self._telling.clear()
        self._silent.clear()
        self._looker = None

    def seen_by(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands in the place of a work's wait."""
        telling, silent = self._telling, self._silent

        def seen(work: Any, *args: Any, **kwargs: Any) -> Any:
            key = id(work)
            if key not in telling and key not in silent:
                return wait(work, *args, **kwargs)
            error: type[BaseException] | None = None
            try:
                return wait(work, *args, **kwargs)
            except BaseException as raised:
                error = type(raised)
                raise
            finally:
                if (one := telling.pop(key, None)) is not None:
                    one.span.end(None, error)
                elif (one := silent.pop(key, None)) is not None:
                    one.span.end(WAITED, error)

        return seen

    def _let_go_of_dropped(self) -> None:
        now = time.monotonic()
        for key, one in list(self._silent.items()):
            dropped = one.references() <= _OURS_ALONE and now - one.since > YOUNG_S
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
            if not self._telling and not self._is_over:
                calls.get()
            self._is_asleep = False
            pause = shortest
            while self._telling and not self._is_over:
                time.sleep(pause)
                self.settle()
                latest = max((one.since for one in list(self._telling.values())), default=0.0)
                pause = min(max((time.monotonic() - latest) / 8, shortest), longest)


def _error_of(future: Any) -> type[BaseException] | None:
    try:
        future.value()
    except Exception as error:  # noqa: BLE001 - it is the collective's, and goes to whoever waits
        return type(error)
    return None
