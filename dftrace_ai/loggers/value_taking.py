"""How a value is taken that is an object of the user's: it may log, too, while it is taken."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dftrace_ai.wording import VALUE_LETTERS, ToldOnce, briefly, quoted, shortened, text_of, warn

if TYPE_CHECKING:
    from dftrace_ai.loggers.routines.base import BaseLogger

__all__ = ["ValueTaking"]

# A signal handler may log while a value is taken, and so may the value itself.
MOST_WITHIN = 2


class ValueTaking:
    """Has routines take values, and ends it where a value logs what logs a value, and so on."""

    def __init__(self) -> None:
        self._within = threading.local()
        self._told = ToldOnce()

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

    def refuse(self, logger: BaseLogger, name: object, error: Exception) -> None:
        """Tell that a value cannot be logged, once for each name."""
        if not self._told.first(logger.key, name):
            return
        said = briefly(error)
        if isinstance(error, TypeError | ValueError):
            said = said.removeprefix(f"{type(error).__name__}: ")
        warn(
            "%s %s cannot be logged: %s; accepted: %s",
            logger.key,
            quoted(shortened(text_of(name), VALUE_LETTERS)),
            said,
            logger.accepts,
        )
