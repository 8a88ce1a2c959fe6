"""A program ends that has not ended its loggers: they are ended for it, with the right status."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from dftrace_ai.loggers.records import Status

__all__ = ["Ended", "watch"]


class Ended(Protocol):
    """What is ended with the program, and forgotten in its forked children."""

    def end_log(self, status: Status | None = None) -> None:
        """End it, unless it has ended."""

    def forget(self) -> None:
        """Let go of what is the parent's, in a forked child."""


_open: dict[int, weakref.ref[Any]] = {}
_status: Status = "finished"
_hooked = False


def watch(loggers: Ended) -> None:
    """End loggers when the program ends: finished, failed by an exception, killed by a signal.

    Args:
        loggers: what to end; it is not kept alive.
    """
    key = id(loggers)
    _open[key] = weakref.ref(loggers, lambda _: _open.pop(key, None))
    _hook()


def _hook() -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True
    # Exit functions of threading run before it waits for the threads of others, and last in,
    # first out: before that of concurrent.futures, whose workers a tracker may have hung.

    register: Any = getattr(threading, "_register_atexit", None)
    if register is None:
        atexit.register(_end_all)
    else:
        try:
            register(_end_all)
        except RuntimeError:  # the interpreter is ending already
            atexit.register(_end_all)
    os.register_at_fork(after_in_child=_forget_all)
    before = sys.excepthook

    def on_exception(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        global _status
        _status = "killed" if issubclass(kind, KeyboardInterrupt) else "failed"
        before(kind, error, trace)

    sys.excepthook = on_exception
    if threading.current_thread() is threading.main_thread():
        _hook_into_termination()


def _hook_into_termination() -> None:
    """End on SIGTERM, where the program has no handler of its own; it ends by it all the same."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def on_termination(number: int, frame: FrameType | None) -> None:
        global _status
        _status = "killed"
        try:
            _end_all()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, on_termination)


def _all() -> list[Any]:
    return [one for one in (known() for known in list(_open.values())) if one is not None]


def _end_all() -> None:
    for loggers in _all():
        loggers.end_log(_status)


def _forget_all() -> None:
    for loggers in _all():
        loggers.forget()
    _open.clear()
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL and _is_ours():
        # Whoever ends a worker of a loader means the worker.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_ours() -> bool:
    handler = signal.getsignal(signal.SIGTERM)
    return getattr(handler, "__module__", None) == __name__
