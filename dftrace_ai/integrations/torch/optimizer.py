"""The part `optimizer`: steps of optimizers, their clearing of gradients, and steps left out."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside, depth, kept, leave_hooked
from dftrace_ai.integrations.swapping import Swaps, is_replaced
from dftrace_ai.run.emitting import RecordedCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions

# Dynamo alone makes a graph of an optimizer's step. Asking for what exports a model, too, takes a
# second call of Python.
_is_compiling = torch.compiler.is_dynamo_compiling


class _Steps:
    """The steps of optimizers, by whichever door they are called."""

    def __init__(self, options: AutoOptions) -> None:
        self._options = options
        self._gate = options.gate
        self._chosen = options.optimizers or ()  # none: all are meant
        self._node = beside(ai.compute.step, companions=options.companions)
        self._hears_by_hooks = False

    def of(self, original: Any) -> Any:
        """Make a `step` of a class that records."""
        # The public hooks alone would not do: torch leaves out the one behind a step that raises,
        # and the span would take in all that follows.
        return _recorded(self._options, "optimizer", self._node, original)

    def is_meant(self, optimizer: object) -> bool:
        return self._gate.live and (not self._chosen or optimizer in self._chosen)

    # What a scheduler made before has kept is the class's own `step`, and is seen by torch's hooks.
    def hear_by_hooks(self, swaps: Swaps) -> None:
        """Have torch call both in each step, which costs each step as much as its span."""
        if not self._hears_by_hooks:
            self._hears_by_hooks = True
            swaps.then(register_optimizer_step_pre_hook(self.before).remove)
            swaps.then(register_optimizer_step_post_hook(self.after).remove)

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if _is_compiling() or depth.optimizer or not self.is_meant(optimizer):
            return
        if depth.hooked:
            leave_hooked()
        self._options.training.optimizer_begins(optimizer)
        span = self._node._begin() if self._gate.recording else None
        kept.hooked, depth.hooked = (optimizer, span), 1

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if _is_compiling() or not depth.hooked or kept.hooked is None:
            return
        begun, span = kept.hooked
        if begun is optimizer:
            kept.hooked, depth.hooked = None, 0
            if span is not None:
                span.end()
            self._options.training.optimizer_ends(optimizer)

    def skipped(self, optimizer: object) -> None:
        """Tell of a step that a scaler has left out."""
        if self._options.gate.recording:
            ai.instant("step skipped", args={"reason": "gradients that are not finite"})
        self._options.training.optimizer_ends(optimizer)


def install(options: AutoOptions) -> Callable[[], None]:
    """Record the steps of all optimizers that are torch's or built on torch's."""
    steps = _Steps(options)
    done: weakref.WeakSet[type] = weakref.WeakSet()
    with Swaps() as swaps:

        def record(kind: type) -> None:
            if kind not in done and "step" in vars(kind):
                done.add(kind)
                swaps.swap(kind, "step", steps.of)

        def record_known(kind: type) -> None:
            one: type
            for one in kind.__subclasses__():
                # Torch's own mark of classes that have instances by now.
                if getattr(vars(one).get("step"), "hooked", None):
                    steps.hear_by_hooks(swaps)
                    record(one)
                record_known(one)

        def patched(original: Any) -> Any:
            @functools.wraps(original)
            def _patch_step_function(optimizer: Any) -> None:
                original(optimizer)
                if options.gate.live:
                    record(type(optimizer))
                if not is_replaced(vars(type(optimizer)).get("step")):
                    steps.hear_by_hooks(swaps)
                if steps.is_meant(optimizer):
                    options.training.optimizers[id(optimizer)] = optimizer

            return _patch_step_function

        record_known(Optimizer)
        swaps.swap(Optimizer, "_patch_step_function", patched)
        swaps.swap(Optimizer, "zero_grad", functools.partial(_clearing, options))
        swaps.swap(torch.amp.GradScaler, "step", functools.partial(_scaled, options, steps))
    return swaps.restore


def _clearing(options: AutoOptions, original: Any) -> Any:
    node = beside(ai.compute.step, "zero_grad", companions=options.companions)
    return _recorded(options, "clearing", node, original)


def _recorded(options: AutoOptions, work: str, node: ProfilerNode, original: Any) -> Any:
    """Make a method of optimizers that records: torch compiles it as if it did not."""
    is_compiling, chosen = _is_compiling, options.optimizers or None
    recorded = RecordedCall(
        work, original, node, options.gate, options.training, leave_hooked, chosen,
        None, None, not options.companions,
    )  # fmt: skip

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        if args or kwargs:
            return recorded(self, *args, **kwargs)
        return recorded(self)  # without the list, tuple and dict that the other call takes

    return method


def _scaled(options: AutoOptions, steps: _Steps, original: Any) -> Any:
    training = options.training

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = training.optimizers_ended
        result = original(self, optimizer, *args, **kwargs)
        if training.optimizers_ended == before and steps.is_meant(optimizer):
            steps.skipped(optimizer)
        return result

    return step
