"""What the package says by the logger ``dftrace_ai``; that it cannot be said ends no training."""

from __future__ import annotations

import logging
import os

__all__ = ["LOGGER", "tell"]

LOGGER = logging.getLogger("dftrace_ai")

STANDARD_ERROR = 2


def tell(level: int, message: str, *values: object, exc_info: bool = False) -> None:
    """Log a line; where the program's own logging raises, write it to file number 2.

    It does where ``sys.stderr`` was closed or replaced, and where a handler, a filter or a
    formatter of the program raises. None of it may come out of a training's `stop` or `finalize`.

    Args:
        level: as `logging.WARNING`.
        message: with places for `values`, as `logging` has them.
        values: for the message.
        exc_info: tell the exception that is being handled, too.

    Example::

        tell(logging.WARNING, "there are no counters of %s: %s", "disks", error)
    """
    try:
        LOGGER.log(level, message, *values, exc_info=exc_info, stacklevel=2)
    except Exception:  # noqa: BLE001 - whatever the program's handlers and streams raise
        _write(message, values)


def _write(message: str, values: tuple[object, ...]) -> None:
    try:
        line = f"dftrace: {message % values}\n"
        os.write(STANDARD_ERROR, line.encode("utf-8", "backslashreplace"))
    except Exception:  # noqa: BLE001 - there is nobody left to be told
        return
