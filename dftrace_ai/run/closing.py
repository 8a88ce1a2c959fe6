"""The setting `summary`: the verdict on a run, and its biggest figures, as the last it says."""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.wording import briefly, escaped, quoted, warn

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from dftrace_ai.run.run import Run

LIMIT_S = 20.0
"""Seconds that a program waits for its summary at most."""

FUNCTION = ("dftrace_ai.analysis.closing", "print_lines")
STANDARD_ERROR = 2

_asked: Run | None = None


def _begin(run: Run) -> None:
    global _asked
    # Of the processes of a run, the one that was told to; the others are in what it reads.
    if run._config is None or not run._config.summary or run._settings is None:
        return
    if run._settings["rank"]["rank"] in (None, 0):
        # Loaded now: what is imported at the end may make the interpreter forget an interrupt.
        import signal  # noqa: F401

        import dftrace_ai.interpreters  # noqa: F401

        _asked = run


def _forget(_: Run) -> None:
    global _asked
    _asked = None


def _tell(run: Run) -> None:
    global _asked
    if _asked is not run:
        return
    _asked = None
    if not run.path or _is_in_signal_handler():
        return
    from dftrace_ai.interpreters import answer_of

    where_else = f"dftrace why {quoted(os.path.dirname(run.path) or '.')}"
    try:
        answer = answer_of(*FUNCTION, [run.path, str(run._begun_ns)], LIMIT_S)
    except OSError as error:
        warn("there is no summary: %s; %s tells it", briefly(error), where_else)
        return
    if answer.status is None:
        warn("the summary took longer than %g s; %s tells it", LIMIT_S, where_else)
    elif answer.status:
        warn("there is no summary: %s; %s tells it", escaped(answer.reason), where_else)
    else:
        _write(answer.output)


def _write(text: str) -> None:
    """Write to standard error, where a program's own output is not disturbed."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - it may be closed, or replaced by anything
        try:
            os.write(STANDARD_ERROR, text.encode("utf-8", "backslashreplace"))
        except OSError:
            return  # there is nobody to be told


def _is_in_signal_handler() -> bool:
    """Return whether a handler of a signal is at work, which others wait for."""
    if threading.current_thread() is not threading.main_thread():
        return False
    import signal

    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Return the code that a handler begins with; None where it is none in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    for one in (handler, type(handler).__call__ if callable(handler) else None):
        code: CodeType | None = getattr(getattr(one, "__func__", one), "__code__", None)
        if code is not None:
            return code
    return None


register(Hook("the summary", on_begin=_begin, after_fork=_forget, when_over=_tell))
