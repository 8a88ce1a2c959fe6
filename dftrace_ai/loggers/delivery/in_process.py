"""A tracker's interface in the training's own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dftrace_ai.loggers.interfaces.base import BaseLogint
    from dftrace_ai.loggers.records import Record, Status

__all__ = ["InProcess"]


class InProcess:
    """An interface that is called directly.

    Args:
        logint: the interface; it is opened by `begin`.
    """

    def __init__(self, logint: BaseLogint) -> None:
        self.logint = logint
        self._taken = 0

    def begin(self) -> None:
        """Open it."""
        self.logint.open()

    def take(self, record: Record) -> None:
        """Hand a record over."""
        self.logint.take(record)
        self._taken += 1

    def end(self, status: Status, limit_s: float) -> None:
        """End the run at the tracker."""
        self.logint.flush()
        self.logint.finish(status)

    def taken(self) -> int:
        """Return how many records have been taken whole."""
        return self._taken

    def fault(self) -> str:
        """Return nothing: what is wrong is raised."""
        return ""

    def abandon(self) -> None:
        """Do nothing: a thread cannot be ended from outside."""
