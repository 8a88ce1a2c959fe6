"""The part `backward`: backward passes, and gradients by `torch.autograd.grad`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside, leave_hooked
from dftrace_ai.integrations.swapping import Swaps
from dftrace_ai.integrations.torch.inside import compiler_flags, running_graph_task
from dftrace_ai.run.emitting import RecordedCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions


def install(options: AutoOptions) -> Callable[[], None]:
    """Record the outermost passes: `Tensor.backward` looks `torch.autograd.backward` up."""
    with Swaps() as swaps:
        swaps.swap(torch.autograd, "backward", functools.partial(learning_backward, options))
        grad = beside(ai.compute.backward, "grad", companions=options.companions)
        swaps.swap(torch.autograd, "grad", functools.partial(_around, options, grad, learns=False))
    return swaps.restore


def learning_backward(options: AutoOptions, original: Any) -> Any:
    """Return a function that is recorded as a backward pass that something is learned from."""
    node = beside(ai.compute.backward, companions=options.companions)
    return _around(options, node, original, learns=True)


def _around(options: AutoOptions, node: ProfilerNode, original: Any, *, learns: bool) -> Any:
    compiler = compiler_flags()
    # With the flag this is one call of Python less: the flag is asked for natively.
    is_compiling = torch.compiler.is_dynamo_compiling if compiler else torch.compiler.is_compiling
    recorded = RecordedCall(
        "backward" if learns else "gradients", original, node, options.gate, options.training,
        leave_hooked, None, running_graph_task(), compiler, not options.companions,
    )  # fmt: skip

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        return recorded(*args, **kwargs)

    return backward
