"""How a thread waits for another: whoever brings it work neither waits nor holds a lock."""

from __future__ import annotations

import queue
import time
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORTEST_S, LONGEST_S = 0.0002, 0.005
# A handler may end the program behind its call, so it waits, and so does one that comes into it. Of
# one that comes again and again the stack would be full in the end.
MOST_NESTED = 5


def wait_until(is_so: Callable[[], bool], until_s: float) -> bool:
    """Wait until something is so, or it is as late, by `time.monotonic`; returns whether it is."""
    # It looks again and again, for a signal handler may come here from within: who waits for a
    # lock then waits for himself.
    pause_s = SHORTEST_S
    while not is_so():
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LONGEST_S)
    return True


class Limit:
    """How long is waited for a tracker: so many seconds without progress of its."""

    # In all this often as long, whatever progress there is.
    MOST_TIMES = 10

    def __init__(self, limit_s: float, moved: Callable[[], bool], first_s: float) -> None:
        now_s = time.monotonic()
        self._limit_s, self._moved = limit_s, moved
        self._until_s = now_s + first_s
        self.last_s = now_s + max(first_s, self.MOST_TIMES * limit_s)

    def left_s(self) -> float:
        """Return how many seconds are left; more where it has moved since this was asked."""
        now_s = time.monotonic()
        if self._moved():
            self._until_s = min(max(self._until_s, now_s + self._limit_s), self.last_s)
        return max(0.0, self._until_s - now_s)

    def wait_until(self, is_so: Callable[[], bool]) -> bool:
        """Wait until something is so, or nothing moves any more; returns whether it is."""
        wait_until(lambda: is_so() or not self.left_s(), self.last_s)
        return is_so()


class Bell:
    """Wakes one thread, from any other, from signal handlers and from finalizers."""

    __slots__ = ("_asleep", "_calls")

    def __init__(self) -> None:
        # An `Event` has a lock that Python code holds: a signal handler that finds it taken by the
        # thread that it has interrupted waits for ever. This queue has no such moment.
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = False

    def ring(self) -> None:
        """Wake the thread from its sleep; costs next to nothing where it is awake, or naps."""
        if self._asleep:
            self._asleep = False
            self._calls.put(None)

    def ring_now(self) -> None:
        """Wake the thread from its sleep, or from its nap."""
        self._asleep = False
        self._calls.put(None)

    def sleep(self, has_work: Callable[[], bool], limit_s: float | None = None) -> None:
        """Sleep until somebody rings, or so many seconds; None for as long as it takes."""
        # Not where there is work already: who brings some does so before he rings.
        self._asleep = True
        if not has_work():
            self.nap(limit_s)
        self._asleep = False

    def nap(self, limit_s: float | None) -> None:
        """Sleep so many seconds, or until somebody rings who cannot wait."""
        try:
            self._calls.get(timeout=limit_s)
        except queue.Empty:
            return


class Nesting:
    """Bounds how many calls that wait lie within one another: signal handlers come into them."""

    __slots__ = ("_threads",)

    def __init__(self) -> None:
        # Appended to and removed from, for neither can be interrupted.
        self._threads: list[int] = []

    @contextmanager
    def within(self) -> Iterator[bool]:
        """Go one deeper on this thread; gives whether that is not too deep to wait."""
        here = get_ident()
        self._threads.append(here)
        try:
            yield self._threads.count(here) <= MOST_NESTED
        finally:
            self._threads.remove(here)
