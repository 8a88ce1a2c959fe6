"""The weight of a layer, without computing it where a parametrization computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

if TYPE_CHECKING:
    from dftrace_ai.inspect.naming import NamedLayer

__all__ = ["has_weight", "is_unready", "stored_weight", "weight_of", "what_is_the_weight"]


def is_unready(module: nn.Module) -> bool:
    """Tell whether a module gets its parameters and its class when it first runs."""
    lazy = isinstance(module, LazyModuleMixin)
    return lazy and any(is_lazy(one) for one in module.parameters(recurse=False))


def weight_of(module: nn.Module) -> Tensor | None:
    """Return the weight of a module as its forward has it, None where there is none."""
    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, Tensor) else None


def has_weight(module: nn.Module) -> bool:
    """Tell whether a module has a weight."""
    # One that is computed is not: spectral_norm goes on to another one whenever it is asked.
    return parametrize.is_parametrized(module, "weight") or weight_of(module) is not None


def _place_of(layer: NamedLayer) -> tuple[nn.Module, str]:
    """The module that has the weight of a layer, and under which name."""
    if layer.kind == "attention" and layer.part == "out_proj":
        return cast("nn.Module", layer.module.out_proj), "weight"
    return layer.module, f"{layer.part}_weight" if layer.kind == "attention" else "weight"


def stored_weight(layer: NamedLayer) -> Any:
    """Return the weight as it is stored, None where it is computed whenever it is asked for."""
    holder, part = _place_of(layer)
    return holder._parameters.get(part, vars(holder).get(part))


def what_is_the_weight(layer: NamedLayer) -> Any:
    """Return the object that two layers share which have the same weight."""
    holder, part = _place_of(layer)
    if parametrize.is_parametrized(holder, part):
        return cast("nn.ModuleDict", holder.parametrizations)[part]
    return getattr(holder, part)
