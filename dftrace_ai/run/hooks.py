"""What else begins and ends with a run: counters, inspection, loggers and instrumentation register.

A run knows none of them by name. They are begun in the order in which they were registered and
ended in reverse; one that fails is told of, and the others, the run and the training go on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.run.run import current_run
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.run.run import Run

__all__ = ["Hook", "begin_hooks", "close_hooks", "end_hooks", "fork_hooks", "register"]


class Hook(NamedTuple):
    """What is called when a run begins, ends, and goes on in a forked child.

    Attributes:
        name: for messages, as in "the counters".
        on_begin: called with the run when recording is on; and at once when it is registered
            during a run.
        on_end: called with the run while recording is still on. A handler of a signal may end
            the run in the middle of it: then it is called again.
        after_fork: called in a forked child that goes on with the run, before anything else is
            recorded there. The thread that forked is the only one that is left.
        when_over: called with the run when it is over and its trace complete, once, where no
            exception ended it. Recording is off.
    """

    name: str
    on_begin: Callable[[Run], None] | None = None
    on_end: Callable[[Run], None] | None = None
    after_fork: Callable[[Run], None] | None = None
    when_over: Callable[[Run], None] | None = None


_registered: dict[str, Hook] = {}


def register(hook: Hook) -> None:
    """Call a hook for this run and for all that come; one of the same name is replaced.

    Args:
        hook: what to call.

    Example::

        register(Hook("my logger", on_begin=open_it, on_end=lambda run: close_it()))
    """
    _registered[hook.name] = hook
    run = current_run()
    if run is not None and run._hooks is not None:
        _begin(hook, run, run._hooks)


def begin_hooks(run: Run) -> None:
    """Begin everything that is registered; called when recording has been turned on."""
    # On the run, which stays the same where the package is imported a second time.
    begun: list[Hook] = []
    run._hooks = begun
    for hook in list(_registered.values()):
        if run._hooks is begun:  # else a signal's handler has ended the run
            _begin(hook, run, begun)


def end_hooks(run: Run) -> None:
    """End what was begun, the latest first; called before recording is turned off.

    Interrupted, it is called again, for what is left.
    """
    begun = run._hooks or []
    for hook in reversed(list(begun)):
        if run._over:
            return
        if hook.on_end is not None:
            try:
                hook.on_end(run)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
                _tell(hook, "end", error)
        if hook in begun:
            begun.remove(hook)
            run._ended_hooks.append(hook)
    run._hooks = None


def close_hooks(run: Run) -> None:
    """Call what wants to know that the run is over; called when its trace is complete."""
    while run._ended_hooks:
        hook = run._ended_hooks.pop(0)
        if hook.when_over is not None:
            try:
                hook.when_over(run)
            except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
                _tell(hook, "close", error)


def fork_hooks(run: Run) -> None:
    """Tell what was begun that this is a forked child."""
    for hook in list(run._hooks or ()):
        if hook.after_fork is not None:
            try:
                hook.after_fork(run)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
                _tell(hook, "go on in a forked child", error)


def _begin(hook: Hook, run: Run, begun: list[Hook]) -> None:
    if any(one.name == hook.name for one in begun):
        return
    # First: if a signal's handler ends the run in the middle, what has begun is ended with it.
    begun.append(hook)
    if hook.on_begin is not None:
        try:
            hook.on_begin(run)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
            _tell(hook, "begin", error)


def _tell(hook: Hook, what: str, error: Exception) -> None:
    tell(
        logging.WARNING,
        "%s could not %s, and the run goes on: %s",
        hook.name,
        what,
        error,
        exc_info=True,
    )
