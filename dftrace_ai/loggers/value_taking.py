"""How a value is taken that is an object of the user's: it may log, too, while it is taken."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dftrace_ai.loggers.routines.base import BaseLogger

__all__ = ["ValueTaking"]

# A signal handler may log while a value is taken, and so may the value itself.
MOST_WITHIN = 2


class ValueTaking:
    """Has routines take values, and ends it where a value logs what logs a value, and so on."""

    def __init__(self) -> None:
        self._within = threading.local()

    def taken(self, logger: BaseLogger, value: Any) -> Any:
        """Return what a routine takes of a value.

        Raises:
            Exception: whatever the routine or the value raises.
            RecursionError: the value logs itself.
        """
        within = getattr(self._within, "count", 0)
        if within >= MOST_WITHIN:
            raise RecursionError("it logs values that log, too")
        self._within.count = within + 1
        try:
            return logger.take(value)
        finally:
            self._within.count = within
