"""Modules without GEMMs that can be reached: what goes in, what comes out, and its gradient."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dftrace_ai.inspect.attaching.modules.opaque import compiled_begin, compiled_look, pass_of
from dftrace_ai.inspect.attaching.passes import begin_pass
from dftrace_ai.inspect.attaching.surroundings import not_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dftrace_ai.inspect.attaching.layer import LiveLayer
    from dftrace_ai.inspect.attaching.passes import Pass


def observable_tensors(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the tensors that can be seen of such a module."""
    # A weight that is computed is not asked for: spectral_norm goes on to another one each time.
    there = parametrize.is_parametrized(module, "weight") or _weight_of(module) is not None
    weight = ("weight",) if there else ()
    return ("activation", *weight, "gradient", "output")


def _weight_of(module: nn.Module) -> Tensor | None:
    """Return the weight of a module as its forward has it, None where there is none."""
    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, Tensor) else None


def look_into(
    layer: LiveLayer, module: nn.Module, given: Iterable[Any]
) -> Callable[[Any], None] | None:
    """Look at the first tensor that a module is given, and its weight; nothing is run."""
    # What is returned looks at the first tensor in what the module returns; it is None where
    # nothing is to be seen.
    running = begin_pass(layer, training=module.training, gradients=torch.is_grad_enabled())
    if running is None:
        return None
    activation = first_tensor(given)
    if activation is not None:
        running.see("activation", activation)
    weight = _weight_of(module) if running.wants("weight") else None
    if weight is not None:
        running.see("weight", weight)
    return partial(_look_at, running)


@not_compiled
def _look_at(running: Pass, returned: Any) -> None:
    output = first_tensor((returned,))
    if output is not None:
        running.see("output", output)
        if output.requires_grad and running.wants("gradient"):
            hook: Callable[..., Any] = output.register_hook
            hook(running.look_back)


def run_compiled(
    station: Tensor, module: nn.Module, original: Callable[[], Any], given: Iterable[Any]
) -> Any:
    """Run a module and look at the same tensors, from code that is being compiled."""
    activation = first_tensor(given)
    weight = _weight_of(module)
    begun = compiled_begin(station, activation, weight)
    returned = original()
    found = _with_look(returned, lambda output: compiled_look(output, begun, activation, weight))
    if found is None:
        _look_uncompiled(begun, returned)
        return returned
    return found[0]


@not_compiled
def _look_uncompiled(begun: Tensor, returned: Any) -> None:
    running = pass_of(begun)
    if running is not None:
        _look_at(running, returned)


def _with_look(returned: Any, look: Callable[[Tensor], Tensor]) -> list[Any] | None:
    """Return, in a list, what was returned with the first tensor replaced; None if it has none."""
    # Something that cannot be made anew, such as an output of Hugging Face, has none either.
    if isinstance(returned, Tensor):
        return [look(returned)]
    if type(returned) not in {tuple, list}:
        return None
    for index, one in enumerate(returned):
        found = _with_look(one, look)
        if found is not None:
            return [type(returned)([*returned[:index], found[0], *returned[index + 1 :]])]
        if first_tensor((one,)) is not None:
            return None
    return None


def first_tensor(values: Iterable[Any]) -> Tensor | None:
    """Return the first tensor in values, also in tuples, lists, dicts and dict-like outputs."""
    # No generator: not every compiler of torch's takes the first of one.
    for value in values:
        if isinstance(value, Tensor):
            return value
        found = None
        if isinstance(value, dict):
            found = first_tensor(value.values())
        elif isinstance(value, (list, tuple)):
            found = first_tensor(value)
        if found is not None:
            return found
    return None
