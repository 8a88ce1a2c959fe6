"""The part `forward`: what models compute; evaluation and activation checkpointing apart."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import NOTHING, beside
from dftrace_ai.integrations.swapping import Swaps
from dftrace_ai.integrations.torch.backward import NO_TASK, running_graph_task
from dftrace_ai.integrations.torch.depth import depth, kept, leave_hooked
from dftrace_ai.integrations.torch.modules import InnerModules
from dftrace_ai.integrations.torch.uncompiled import compiler_of_thread
from dftrace_ai.run.emitting import quick_within_forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["install"]


def install(options: AutoOptions) -> Callable[[], None]:
    """Record the outermost calls of modules that have parameters, and deeper ones that are wanted.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.

    Raises:
        NotInThisVersion: torch lacks what is needed.
    """
    inner = InnerModules(options) if options.depth > 1 or options.modules else None
    outermost = _outermost(options, names_inner=inner is not None)
    with Swaps() as swaps:
        make = _known if inner is None else functools.partial(_deeper, inner)
        swaps.swap(torch.nn.Module, "__call__", functools.partial(make, outermost))
    return swaps.restore


def _known(outermost: Callable[..., Any], original: Any) -> Any:
    """Make a `Module.__call__` that costs modules within modules next to nothing."""
    names = getattr(getattr(original, "__code__", None), "co_names", ())
    if tuple(sorted(set(names))) != ("_call_impl", "_compiled_call_impl"):
        return _around(outermost, original)

    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Asked first: not every compiler of torch's takes a count of ours for a condition.
        if is_compiling() or depth.forward:
            # What torch's own does: another call of it would double what a module costs here.
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        return outermost(original, self, args, kwargs)

    return quick_within_forward(_wrapped_call_impl, compiler_of_thread())


def _around(outermost: Callable[..., Any], original: Any) -> Any:
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or depth.forward:
            return original(self, *args, **kwargs)
        return outermost(original, self, args, kwargs)

    return recorded


def _deeper(inner: InnerModules, outermost: Callable[..., Any], original: Any) -> Any:
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        if not depth.forward:
            return outermost(original, self, args, kwargs)
        depth.forward += 1
        try:
            with inner.node_of(self, depth.forward):
                return original(self, *args, **kwargs)
        finally:
            depth.forward -= 1

    return recorded


def _outermost(options: AutoOptions, *, names_inner: bool) -> Callable[..., Any]:
    gate, training, models = options.gate, options.training, options.models
    some_are_meant, not_meant = bool(models), options.not_meant
    is_compiling, graph_task = torch.compiler.is_compiling, running_graph_task()
    grad_is_on = torch.is_grad_enabled
    learning = beside(ai.compute.forward, companions=options.companions)
    evaluating = beside(ai.compute.forward, "eval", companions=options.companions)
    recomputing = beside(ai.compute.forward, "recompute", companions=options.companions)

    known: dict[int, weakref.ref[Any]] = {}

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if is_compiling() or not gate.live:
            return original(module, *args, **kwargs)
        found = known.get(id(module))
        if (found is None or found() is not module) and not _is_model(module, known):
            return original(module, *args, **kwargs)
        if some_are_meant and module not in models:
            return original(module, *args, **kwargs)
        if not_meant and any(test(args) for test in not_meant):
            return original(module, *args, **kwargs)
        if depth.hooked:
            leave_hooked()
        node: ProfilerNode
        if graph_task() != NO_TASK:
            node = recomputing
        else:
            learns = module.training and grad_is_on()
            training.forward(learns)
            node = learning if learns else evaluating
        depth.forward = 1
        if names_inner:
            kept.model = module
        try:
            with node if gate.recording else NOTHING:
                return original(module, *args, **kwargs)
        finally:
            depth.forward = 0
            if node is evaluating:
                training.judged()
            if names_inner:
                kept.model = None

    return call


def _is_model(module: Any, known: dict[int, weakref.ref[Any]]) -> bool:
    """Whether a module has parameters: one that has none is a loss, or prepares what goes in.

    Args:
        module: that is called.
        known: takes those that have some, by identity, for they are looked for before each step.
    """
    if not module._parameters and (not module._modules or next(module.parameters(), None) is None):
        return False
    key = id(module)
    known[key] = weakref.ref(module, lambda _: known.pop(key, None))
    return True
