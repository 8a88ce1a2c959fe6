"""How a thread sleeps until there is work: whoever brings it neither waits nor holds a lock."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Bell"]


class Bell:
    """Wakes one thread, from any other, from signal handlers and from finalizers.

    An `Event` has a lock that Python code holds: a signal handler that finds it taken by the thread
    that it has interrupted waits for ever. The queue here has no such moment.

    Example::

        work, bell = deque(), Bell()
        bell.sleep(lambda: bool(work))  # in the one thread
        work.append(1)
        bell.ring()  # in the other
    """

    __slots__ = ("_asleep", "_calls")

    def __init__(self) -> None:
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
        """Sleep until somebody rings, or so many seconds.

        Args:
            has_work: whether there is work already; who brings some does so before he rings.
            limit_s: seconds; None for as long as it takes.
        """
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
