"""What a call has taken, and how a value is taken that may log, too, while it is taken."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.wording import VALUE_LETTERS, ToldOnce, briefly, quoted, shortened, text_of, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.loggers.records import Point, Record
    from dftrace_ai.loggers.routines.base import BaseLogger
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["Taken", "ValueTaking"]

# A signal handler may log while a value is taken, and so may the value itself.
MOST_WITHIN = 2


class Taken(NamedTuple):
    """What one call has taken: values by routine, and what is made into records of its own.

    Of the end of an epoch: how many iterations there were, and by `time.monotonic` when it was.
    """

    at: Point
    metrics: Sequence[tuple[int, JsonObject]] = ()
    others: Sequence[tuple[BaseLogger, int | None, str, Any]] = ()
    direct: Sequence[Record] = ()
    epoch: tuple[int, float] | None = None


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
