"""A framework's own function that updates the parameters, as the step of an optimizer."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import NOTHING, beside
from dftrace_ai.integrations.torch.depth import depth

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["applying"]


def applying(
    options: AutoOptions, original: Any, *, is_compiling: Callable[[], bool] | None = None
) -> Any:
    """Return a method that is recorded as a ``compute.step``; what steps within it is none.

    `is_compiling`: whether what it is called for is a graph, of which nothing runs now; None for
    torch's.
    """
    # Torch is there by now, and was not when this was.
    is_graph = is_compiling or sys.modules["torch"].compiler.is_compiling
    node = beside(ai.compute.step, companions=options.companions)

    @functools.wraps(original)
    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        # One that scales the loss calls another.
        if is_graph() or depth.optimizer or not options.gate.live:
            return original(self, *args, **kwargs)
        depth.optimizer = 1
        options.training.optimizer_begins(self)
        try:
            with node if options.gate.recording else NOTHING:
                return original(self, *args, **kwargs)
        finally:
            depth.optimizer = 0
            options.training.optimizer_ends(self)

    return apply
