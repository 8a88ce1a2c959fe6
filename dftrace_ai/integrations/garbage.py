"""The part `gc`: collections of Python's garbage that last.

Loaded late, as a part by its name in `registry`.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from dftrace_ai._native import Collections
from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.run.run import LAUNCH_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.integrations.options import AutoOptions


def install(options: AutoOptions) -> Callable[[], None]:
    """Record collections of a millisecond and more, in the thread that they stop."""
    # A program that was launched may be none that records anything, as a launcher of ranks is: it
    # has no trace, and not one now and then.
    heard = Collections(beside(ai.host.gc), options.gate, LAUNCH_VARIABLE not in os.environ)
    gc.callbacks.append(heard)

    def remove() -> None:
        if heard in gc.callbacks:  # somebody may have emptied it
            gc.callbacks.remove(heard)

    return remove
