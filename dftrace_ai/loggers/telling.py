"""How it is told that something was lost: nothing that goes wrong there reaches the training."""

from __future__ import annotations

import logging

__all__ = ["tell"]

_log = logging.getLogger("dftrace_ai")


def tell(message: str, *values: object) -> None:
    """Log a warning, with the values in the places of the message.

    Raises nothing: a signal handler that finds the stream in use by what it has interrupted is
    refused by it, and a handler of the program's own may raise anything.
    """
    try:
        _log.warning(message, *values)
    except Exception:  # noqa: BLE001 - whom it could be told is who has raised
        return
