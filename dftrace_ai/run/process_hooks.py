"""Hooks into the life of the process: its end, its forks, and its end as somebody's worker."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["hook_into_process"]

_hooked = False
_at_exit: Callable[[], None]


def hook_into_process(at_exit: Callable[[], None], after_fork: Callable[[], None]) -> None:
    """See to the end of this process and of its forked children, once.

    Args:
        at_exit: called when the program ends, and when a worker of multiprocessing
            does; it may be called more than once.
        after_fork: called in each forked child.

    Example::

        hook_into_process(complete_the_trace, forget_the_parent)
    """
    global _hooked, _at_exit
    if _hooked:
        return
    _at_exit = at_exit

    def in_child() -> None:
        after_fork()
        _hook_into_multiprocessing()

    atexit.register(at_exit)
    os.register_at_fork(after_in_child=in_child)
    _hook_into_multiprocessing()
    # Last: interrupted before, it is done again, which does no harm.
    _hooked = True


class _ForkWitness:
    """What multiprocessing calls back in each of its children."""


_witness = _ForkWitness()


def _hook_into_multiprocessing() -> None:
    # A child of multiprocessing leaves by os._exit: of the ways to say a last word only its own
    # finalizers are run, and those are cleared after the fork, before the after-fork callbacks.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_witness, _end_with_worker)
        if util.sys.modules["multiprocessing.process"].parent_process() is not None:
            _end_with_worker(_witness)


def _end_with_worker(_: _ForkWitness) -> None:
    util = sys.modules["multiprocessing.util"]
    util.Finalize(None, _at_exit, exitpriority=-1000)
