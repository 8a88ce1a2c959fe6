"""A tracker's queue and the thread that empties it: the training waits for neither."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from dftrace_ai.wording import counted, described, quoted

if TYPE_CHECKING:
    from dftrace_ai.loggers.records import Record, Status

__all__ = ["Delivery", "Tracker"]

_log = logging.getLogger("dftrace_ai")

# How long an idle thread sleeps before it looks again, should it not be woken.
IDLE_S = 0.5


class Tracker(Protocol):
    """Where records end: an interface here, or one in a process of its own."""

    def begin(self) -> None:
        """Begin the run; may take long, and may raise anything."""

    def take(self, record: Record) -> None:
        """Take a record; may take long, and may raise anything."""

    def end(self, status: Status, limit_s: float) -> None:
        """End the run; may take long, and may raise anything."""

    def taken(self) -> int:
        """Return how many records have been taken whole."""

    def fault(self) -> str:
        """Return why not all were, as far as the tracker knows by itself; or ""."""

    def abandon(self) -> None:
        """Let go of it, without waiting for anything."""


class Delivery:
    """Hands records to one tracker, on a thread of its own, in order.

    Args:
        name: of the tracker, for messages.
        tracker: where they end.
        most: so many wait at most; more are lost, and counted.

    Attributes:
        name: of the tracker.
    """

    def __init__(self, name: str, tracker: Tracker, most: int) -> None:
        self.name = name
        self._tracker = tracker
        self._most = most
        self._queue: deque[Record] = deque()
        self._given = 0
        self._fault = ""
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._status: Status | None = None
        self._limit_s = 0.0
        self._told = False
        self._thread = threading.Thread(target=self._run, name=f"dftrace-{name}", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Have a record delivered; never waits."""
        self._given += 1
        if len(self._queue) >= self._most:
            self._note("its queue is full")
            return
        self._queue.append(record)
        self._wake.set()

    def put_and_wait(self, record: Record, limit_s: float) -> None:
        """Have a record delivered, and wait until the tracker has taken it, or could not."""
        self.put(record)
        self.wait(limit_s)

    def wait(self, limit_s: float) -> None:
        """Wait until all is taken, or refused, or so many seconds have passed."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until and not self._ended.is_set():
            if not self._queue and (self.lost() == 0 or self._fault or self._tracker.fault()):
                return
            time.sleep(0.001)

    def lost(self) -> int:
        """Return how many of the records given so far the tracker has not taken."""
        return max(0, self._given - self._tracker.taken())

    def close(self, status: Status, limit_s: float) -> None:
        """Begin to end: what waits is delivered, then the tracker's run ends. Does not wait.

        Args:
            status: how the run ends.
            limit_s: seconds until `settle` is called.
        """
        if self._status is None:
            self._limit_s = limit_s
            self._status = status
        self._wake.set()

    def settle(self, until_s: float) -> None:
        """Wait for the end until then, let go of the tracker, and tell what was lost, once.

        Args:
            until_s: by `time.monotonic`.
        """
        in_time = self._ended.wait(max(0.0, until_s - time.monotonic()))
        if not in_time:
            self._note("it did not end in time")
        self._tracker.abandon()
        lost = self.lost()
        if (lost or self._fault) and not self._told:
            self._told = True
            why = self._fault or self._tracker.fault() or "unknown"
            _log.warning(
                "the tracker %s lost %s of %s: %s",
                quoted(self.name),
                f"{lost:,}",
                counted(self._given, "record"),
                why,
            )

    def forget(self) -> None:
        """Forget the tracker in a forked child: it is the parent's."""
        self._queue = deque()
        self._told = True
        self._tracker.abandon()

    def _note(self, fault: str) -> None:
        if not self._fault:
            self._fault = fault

    def _run(self) -> None:
        try:
            self._tracker.begin()
        except BaseException as error:  # noqa: BLE001 - a tracker may also ask for the exit
            self._note(f"it could not begin: {described(error)}")
            _log.warning(
                "the tracker %s could not begin, and all else goes on without it: %s",
                quoted(self.name),
                described(error),
            )
            self._ended.set()
            return
        while True:
            self._deliver()
            status = self._status
            if status is not None and not self._queue:
                break
            self._wake.wait(IDLE_S)
            self._wake.clear()
        try:
            self._tracker.end(status, self._limit_s)
        except BaseException as error:  # noqa: BLE001
            self._note(f"it could not end: {described(error)}")
        self._ended.set()

    def _deliver(self) -> None:
        while self._queue:
            try:
                # It stays in the queue while it is taken, so that `wait` waits for it.
                self._tracker.take(self._queue[0])
            except BaseException as error:  # noqa: BLE001
                self._note(described(error))
            if self._queue:
                self._queue.popleft()
