"""A tracker's interface in the training's own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.loggers.delivery.fork_barrier import ForkBarrier

if TYPE_CHECKING:
    from dftrace_ai.loggers.interfaces.base import BaseLogint, RunFacts
    from dftrace_ai.loggers.records import Record, Status

__all__ = ["InProcess"]


class InProcess:
    """An interface that is called directly.

    Args:
        kind: the interface; it is made and opened by `begin`.
        run: the run that is logged.

    Attributes:
        logint: the interface; None until it has begun.
    """

    def __init__(self, kind: type[BaseLogint], run: RunFacts) -> None:
        self._kind = kind
        self._run = run
        self.logint: BaseLogint | None = None
        # The same, from before it begins.
        self._made: BaseLogint | None = None
        self._calls = ForkBarrier()
        self._taken = self._seen = 0
        self._ended = False

    def start(self) -> None:
        """Do nothing: there is no process to start."""

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
        try:
            with self._calls:
                self.logint.take(record)
                self.logint.lull()
            self._taken += 1
        finally:
            self._seen += 1

    def end(self, status: Status, limit_s: float) -> None:
        """End the run at the tracker."""
        if self.logint is not None:
            self.logint.limit_s = limit_s
            with self._calls:
                self.logint.flush()
                self.logint.finish(status)
        self._ended = True

    def ended(self) -> bool:
        """Return whether the run has ended at the tracker."""
        return self._ended

    def taken(self) -> int:
        """Return how many records have been taken whole."""
        return self._taken

    def sent(self) -> int:
        """Return how many records were handed over to where it is."""
        return self._seen

    def seen(self) -> int:
        """Return how many records were taken or refused."""
        return self._seen

    def fault(self) -> str:
        """Return nothing: what is wrong is raised."""
        return ""

    def abandon(self) -> None:
        """Do nothing: a thread cannot be ended from outside."""

    def forget(self) -> None:
        """Close what is the parent's, in a forked child."""
        if self._made is not None:
            self._made.forget()
