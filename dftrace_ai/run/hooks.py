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


class Hook(NamedTuple):
    """What is called when a run begins, ends, and goes on in a forked child."""

    name: str  # for messages, as in "the counters"
    # When recording is on; and at once when it is registered during a run.
    on_begin: Callable[[Run], None] | None = None
    # While recording is still on. A handler of a signal may end the run in the middle of it: then
    # it is called again.
    on_end: Callable[[Run], None] | None = None
    # Before anything else is recorded there. The thread that forked is the only one that is left.
    after_fork: Callable[[Run], None] | None = None
    # When the run is over and its trace complete, once, where no exception ended it.
    when_over: Callable[[Run], None] | None = None


_registered: dict[str, Hook] = {}


def register(hook: Hook) -> None:
    """Call a hook for this run and for all that come; one of the same name is replaced."""
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
    """End what was begun, the latest first; interrupted, it is called again, for what is left."""
    begun = run._hooks or []
    for hook in reversed(list(begun)):
        if run._over:
            return
        _call(hook, hook.on_end, run, "end")
        if hook in begun:
            begun.remove(hook)
            run._ended_hooks.append(hook)
    run._hooks = None


def close_hooks(run: Run) -> None:
    """Call what wants to know that the run is over; called when its trace is complete."""
    while run._ended_hooks:
        hook = run._ended_hooks.pop(0)
        _call(hook, hook.when_over, run, "close")


def fork_hooks(run: Run) -> None:
    """Tell what was begun that this is a forked child."""
    for hook in list(run._hooks or ()):
        _call(hook, hook.after_fork, run, "go on in a forked child")


def _begin(hook: Hook, run: Run, begun: list[Hook]) -> None:
    if any(one.name == hook.name for one in begun):
        return
    # First: if a signal's handler ends the run in the middle, what has begun is ended with it.
    begun.append(hook)
    _call(hook, hook.on_begin, run, "begin")


def _call(hook: Hook, function: Callable[[Run], None] | None, run: Run, what: str) -> None:
    if function is None:
        return
    try:
        function(run)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run and the program go on
        tell(
            logging.WARNING,
            "%s could not %s, and the run goes on: %s",
            hook.name,
            what,
            error,
            exc_info=True,
        )
