"""The part `forward`: what models compute; evaluation and activation checkpointing apart."""

from __future__ import annotations

import functools
import weakref
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import NOTHING, asked, beside, depth, kept, leave_hooked
from dftrace_ai.integrations.swapping import Swaps
from dftrace_ai.integrations.torch.inside import (
    compiler_flags,
    compiler_of_thread,
    running_graph_task,
)
from dftrace_ai.run.emitting import RecordedForward, quick_within_forward, record_within_forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions


def install(options: AutoOptions) -> Callable[[], None]:
    """Record the outermost calls of modules with parameters, and deeper ones that are wanted."""
    inner = InnerModules(options) if options.depth > 1 or options.modules else None
    with Swaps() as swaps:
        make = _known(options, swaps) if inner is None else _named(options, swaps, inner)
        swaps.swap(torch.nn.Module, "__call__", make)
    return swaps.restore


def _is_known(original: Any) -> bool:
    """Whether it is the `Module.__call__` whose work is known."""
    names = getattr(getattr(original, "__code__", None), "co_names", ())
    return tuple(sorted(set(names))) == ("_call_impl", "_compiled_call_impl")


def _named(options: AutoOptions, swaps: Swaps, inner: InnerModules) -> Callable[[Any], Any]:
    """Make one that records modules within modules, and leaves them as much room to recurse."""

    def make(original: Any) -> Any:
        recorded = _deeper(options, inner, original)
        if _is_known(original):
            quick_within_forward(recorded, compiler_of_thread())
            record_within_forward(inner.node_of, options.gate, not options.companions)
            swaps.then(record_within_forward)
        return recorded

    return make


def _known(options: AutoOptions, swaps: Swaps) -> Callable[[Any], Any]:
    """Make a `Module.__call__` that costs modules within modules next to nothing."""

    def make(original: Any) -> Any:
        if not _is_known(original):
            return _around(options, original)
        is_compiling, recorded = torch.compiler.is_compiling, _outermost(options, original)

        @functools.wraps(original)
        def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
            # Asked first: not every compiler of torch's takes a count of ours for a condition.
            if is_compiling() or depth.forward:
                # What torch's own does: another call of it would double what a module costs here.
                if self._compiled_call_impl is not None:
                    return self._compiled_call_impl(*args, **kwargs)
                return self._call_impl(*args, **kwargs)
            return recorded(self, *args, **kwargs)

        known = _wrapped_call_impl, compiler_of_thread()
        flags = compiler_flags()
        quick_within_forward(*known, *(() if flags is None else (recorded, flags)))
        swaps.then(functools.partial(quick_within_forward, *known))
        return _wrapped_call_impl

    return make


def _around(options: AutoOptions, original: Any) -> Any:
    is_compiling, outermost = torch.compiler.is_compiling, _outermost(options, original)

    @functools.wraps(original)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or depth.forward:
            return original(self, *args, **kwargs)
        return outermost(self, *args, **kwargs)

    return recorded


def _deeper(options: AutoOptions, inner: InnerModules, original: Any) -> Any:
    is_compiling, outermost = torch.compiler.is_compiling, _outermost(options, original)

    @functools.wraps(original)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        if not depth.forward:
            before, kept.model = kept.model, self
            try:
                return outermost(self, *args, **kwargs)
            finally:
                kept.model = before
        depth.forward += 1
        try:
            with inner.node_of(self, depth.forward):
                return original(self, *args, **kwargs)
        finally:
            depth.forward -= 1

    return recorded


def _outermost(options: AutoOptions, original: Any) -> RecordedForward:
    learning, evaluating, recomputing = (
        beside(ai.compute.forward, name, companions=options.companions)
        for name in (None, "eval", "recompute")
    )
    return RecordedForward(
        original, options.gate, options.training, learning, evaluating, recomputing, _is_model,
        options.models or None, options.not_meant, leave_hooked, running_graph_task(),
        torch.is_grad_enabled, not options.companions,
    )  # fmt: skip


def _is_model(module: Any, known: dict[int, weakref.ref[Any]]) -> bool:
    """Whether a module has parameters: one that has none is a loss, or prepares what goes in."""
    if asked(lambda: bool(module._parameters) or _inner_parameters(module, {id(module)})) is False:
        return False
    key = id(module)
    known[key] = weakref.ref(module, lambda _: known.pop(key, None))
    return True


def _inner_parameters(module: Any, met: set[int]) -> bool:
    """Whether modules within have parameters: asked of none that may not be hashed by a set."""
    for inner in module._modules.values():
        if inner is None or id(inner) in met:
            continue
        met.add(id(inner))
        if any(one is not None for one in inner._parameters.values()):
            return True
        if _inner_parameters(inner, met):
            return True
    return False


class InnerModules:
    """Knows the nodes of modules, named after where each lies in its model."""

    def __init__(self, options: AutoOptions) -> None:
        self._options = options
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}

    def node_of(self, module: Any, level: int) -> ProfilerNode:
        """Return the node of a module that is about to be called, which may record nothing."""
        options = self._options
        if not options.gate.recording:
            return NOTHING
        name = self._name_of(module)
        wanted = level <= options.depth or any(
            fnmatchcase(name, pattern) or fnmatchcase(type(module).__name__, pattern)
            for pattern in options.modules
        )
        if not wanted:
            return NOTHING
        return beside(ai.compute.forward, name, companions=options.companions)

    def _learn_below(self, module: Any, path: str, met: set[int]) -> None:
        # As `named_modules` names them, which hashes and compares modules by methods of theirs.
        for name, inner in module._modules.items():
            if inner is not None and id(inner) not in met:
                met.add(id(inner))
                self._note(inner, f"{path}{name}")
                asked(self._learn_below, inner, f"{path}{name}.", met)

    def _note(self, module: Any, name: str) -> None:
        known, key = self._known, id(module)
        known[key] = (weakref.ref(module, lambda _: known.pop(key, None)), name)

    def _name_of(self, module: Any) -> str:
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            if kept.model is not None:
                asked(self._learn_below, kept.model, "", {id(kept.model)})
            known = self._known.get(id(module))
            if known is None or known[0]() is not module:  # of no model: made in a forward
                self._note(module, type(module).__name__)
        return self._known[id(module)][1]
