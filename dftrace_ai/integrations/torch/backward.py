"""The part `backward`: backward passes, and gradients by `torch.autograd.grad`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import NOTHING, beside
from dftrace_ai.integrations.swapping import NotInThisVersion, Swaps
from dftrace_ai.integrations.torch.depth import depth

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["install", "learning_backward", "running_graph_task"]

NO_TASK = -1


def running_graph_task() -> Callable[[], int]:
    """Return what tells which backward pass calls, -1 outside of any.

    Raises:
        NotInThisVersion: torch does not tell.
    """
    found: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)
    if found is None:
        raise NotInThisVersion("torch._C._current_graph_task_id")
    return found


def install(options: AutoOptions) -> Callable[[], None]:
    """Record the outermost backward passes: `Tensor.backward` looks `torch.autograd.backward` up.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.

    Raises:
        NotInThisVersion: torch lacks what is needed.
    """
    with Swaps() as swaps:
        swaps.swap(torch.autograd, "backward", functools.partial(learning_backward, options))
        grad = beside(ai.compute.backward, "grad", companions=options.companions)
        swaps.swap(torch.autograd, "grad", functools.partial(_around, options, grad, learns=False))
    return swaps.restore


def learning_backward(options: AutoOptions, original: Any) -> Any:
    """Return a function that is recorded as a backward pass that something is learned from.

    Args:
        options: of `auto`.
        original: the function.

    Raises:
        NotInThisVersion: torch lacks what is needed.
    """
    node = beside(ai.compute.backward, companions=options.companions)
    return _around(options, node, original, learns=True)


def _around(options: AutoOptions, node: ProfilerNode, original: Any, *, learns: bool) -> Any:
    gate, training = options.gate, options.training
    is_compiling, graph_task = torch.compiler.is_compiling, running_graph_task()

    @functools.wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        # Reentrant checkpointing calls it within a backward pass, on any thread.
        inside = depth.backward or is_compiling() or graph_task() != NO_TASK
        if inside or not gate.live:
            return original(*args, **kwargs)
        depth.backward = 1
        try:
            with node if gate.recording else NOTHING:
                return original(*args, **kwargs)
        finally:
            depth.backward = 0
            if learns:
                training.backward(depth.optimizer > 0)

    return recorded
