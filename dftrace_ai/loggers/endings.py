"""A program ends that has not ended its loggers: they are ended for it, with the right status."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import FrameType

    from dftrace_ai.loggers.records import Status


class Ended(Protocol):
    """What is ended with the program, and forgotten in its forked children."""

    def begin_end(self, status: Status) -> None:
        """Begin to end it, unless somebody has; does not wait."""

    def let_go(self, status: Status) -> None:
        """Begin to end it wherever the collector is at work, and have it settled elsewhere."""

    def settle(self) -> None:
        """Wait for the end, within a limit."""

    def forget(self) -> None:
        """Let go of what is the parent's, in a forked child."""


_open: dict[int, Ended] = {}
_seen_before: object = None
_said: Status | None = None
_is_obeying = False
_hooked = False


def watch(ended: Ended, holder: object) -> None:
    """End what logs with the program: finished, failed by an exception, killed by a signal.

    It ends before when the holder, whatever the user has of it, is gone.
    """
    key = id(ended)
    _open[key] = ended
    # Called wherever the collector happens to be: it must not wait.
    weakref.finalize(holder, lambda: ended.let_go(_said or "finished")).atexit = False
    hook()
    if threading.current_thread() is threading.main_thread():
        _hook_into_termination()


def unwatch(ended: Ended) -> None:
    """Let what has ended be forgotten."""
    _open.pop(id(ended), None)


def hook() -> None:
    """Be called when the program ends or forks, and in its forked children."""
    # Trackers that live in this process have hooks of their own, which run in the order in
    # which they were made; so this is called before any of them begins.
    global _hooked, _seen_before
    if _hooked:
        return
    _hooked = True
    _seen_before = _last_exception()
    # Exit functions of threading run before it waits for the threads of others, and last in,
    # first out: before that of concurrent.futures, whose workers a tracker may have hung.
    register: Any = getattr(threading, "_register_atexit", None)
    with contextlib.suppress(RuntimeError):  # the interpreter is ending already
        import concurrent.futures.thread  # noqa: F401

        if register is not None:
            register(_end_before_threads)
    atexit.register(_end_all)
    os.register_at_fork(after_in_child=_forget_all)
    _hook_into_child()


def _hook_into_child() -> None:
    """Learn how a process of multiprocessing ends, which keeps its exception for itself."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or processes.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    def on_end() -> None:
        global _said
        kind, error, _ = sys.exc_info()
        if kind is not None and error is not None:
            _said = status_by(error)

    Finalize(None, on_end, exitpriority=0)


def _hook_into_termination() -> None:
    """End on SIGTERM, where the program has no handler of its own; it ends by it all the same."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def on_termination(number: int, frame: FrameType | None) -> None:
        global _said, _is_obeying
        if signal.getsignal(number) is not on_termination:
            return  # a handler of the program has come later, and calls the one before it
        if _is_obeying:
            return  # it has come into itself, and goes on there
        _said, _is_obeying = "killed", True
        try:
            _end_all()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, on_termination)


def _last_exception() -> object:
    # What ends the program is kept there, whoever has put which `excepthook` in its place.
    return getattr(sys, "last_value", None)


def status_by(error: BaseException) -> Status:
    """Return how a run ends that an exception has ended."""
    if isinstance(error, SystemExit):
        return "failed" if error.code else "finished"
    return "killed" if isinstance(error, KeyboardInterrupt) else "failed"


def _status() -> Status:
    if _said is not None:
        return _said
    error = _last_exception()
    # At a prompt, and in a notebook, an exception ends what was typed, and not the program.
    is_prompt = hasattr(sys, "ps1") or "get_ipython" in vars(sys.modules.get("builtins", sys))
    if isinstance(error, BaseException) and error is not _seen_before and not is_prompt:
        return status_by(error)
    return "finished"


def _end_before_threads() -> None:
    """End, unless other threads go on: the training may be one of them, and not have ended."""
    main = threading.main_thread()
    others = (t for t in threading.enumerate() if t is not main and not t.daemon)
    if _is_child_of_multiprocessing() or not any(others):
        _end_all()


def _is_child_of_multiprocessing() -> bool:
    # It ends without the exit functions that are called last.
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _end_all() -> None:
    ended = list(_open.values())
    status = _status()
    # All begin before any is waited for: what they wait for goes on at the same time.
    for one in ended:
        one.begin_end(status)
    for one in ended:
        one.settle()


def _forget_all() -> None:
    global _said, _is_obeying
    for one in list(_open.values()):
        one.forget()
    _open.clear()
    _said, _is_obeying = None, False
    handler = signal.getsignal(signal.SIGTERM)
    if getattr(handler, "__module__", None) == __name__:
        # Whoever ends a worker of a loader means the worker.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
