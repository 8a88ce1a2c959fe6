"""The part `gc`: collections of Python's garbage that last.

Loaded late, as a part by its name in `registry`.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from dftrace_ai._native import Collections
from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.integrations.options import AutoOptions


def install(options: AutoOptions) -> Callable[[], None]:
    """Record collections of a millisecond and more, in the thread that they stop."""
    heard = Collections(beside(ai.host.gc), options.gate)
    gc.callbacks.append(heard)

    def remove() -> None:
        if heard in gc.callbacks:  # somebody may have emptied it
            gc.callbacks.remove(heard)

    return remove
