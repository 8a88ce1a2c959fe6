"""Keeps forks and the calls of a tracker that lives in the training's process apart.

A lock that another thread holds while the process forks is held for ever in the child. Trackers
write to buffered files on the thread that calls them, and some of them close these files in every
child: a worker of a loader that is forked in the middle of a call then never begins.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["ForkBarrier"]

LONGEST_WAIT_S: Final = 2.0
"""So long a fork waits for a call to end; one that lasts longer is not waited for again."""


class ForkBarrier:
    """Entered for each call. Threads that fork wait for its end, and keep others out meanwhile."""

    def __init__(self) -> None:
        # Of who forks within a call it is his own.
        self._lock = RLock()
        self._begun = 0
        self._given_up = 0

    def __enter__(self) -> None:
        """Wait for a fork to be over."""
        self._lock.acquire()
        self._begun += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let forks happen."""
        self._lock.release()

    def close_to_forks(self) -> None:
        """Have forks wait from now on.

        Handlers that come last are called first before a fork: after the tracker has made its own,
        no call waits for one of these.
        """
        found = weakref.ref(self)

        def of_barrier(act: Callable[[ForkBarrier], None]) -> Callable[[], None]:
            def handler() -> None:
                barrier = found()
                if barrier is not None:
                    act(barrier)

            return handler

        os.register_at_fork(
            before=of_barrier(ForkBarrier._before_fork),
            after_in_parent=of_barrier(ForkBarrier._after_fork),
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
