"""The exception that is about to end a run, in words."""

from __future__ import annotations

import sys
import traceback

__all__ = ["told_of", "uncaught_exception"]

# The innermost frames, and the end of what they make, are what one looks for.
MOST_FRAMES = 64
MOST_LETTERS = 32 * 1024


def uncaught_exception(ended: str) -> BaseException | None:
    """Return the exception that is on its way out of a ``with tracing()`` or of the program."""
    error = sys.exc_info()[1]
    if error is None and ended == "exit" and not hasattr(sys, "ps1"):
        # Set by the interpreter when it has printed the traceback, before it calls exit handlers;
        # at a prompt by any line that failed.
        error = getattr(sys, "last_value", None)
    return None if isinstance(error, (SystemExit, GeneratorExit)) else error


def told_of(error: BaseException) -> tuple[str, str, str]:
    """Return an exception's type, message and stack, as text that any JSON takes."""
    kind = type(error)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - somebody else's code, and the trace has yet to be written
        message = "<str() of it failed>"
    stack = "".join(
        traceback.format_exception(kind, error, error.__traceback__, limit=-MOST_FRAMES)
    )
    if len(stack) > MOST_LETTERS:
        stack = "…" + stack[-MOST_LETTERS:]
    texts = kind.__qualname__, message[:MOST_LETTERS], stack
    name, said, shown = (text.encode("utf-8", "replace").decode() for text in texts)
    return name, said, shown
