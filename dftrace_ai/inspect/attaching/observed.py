"""Modules without GEMMs that can be reached: what goes in, what comes out, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import nn

    from dftrace_ai.inspect.attaching.layer import LiveLayer
    from dftrace_ai.inspect.nonfinite import LayerWatch

__all__ = ["observable_tensors", "run_other"]


def observable_tensors(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the tensors that can be seen of such a module."""
    weight = () if _weight_of(module) is None else ("weight",)
    return ("activation", *weight, "gradient", "output")


def run_other(
    layer: LiveLayer, module: nn.Module, original: Callable[[], Any], given: Iterable[Any]
) -> Any:
    """Run a module and look at its first tensor, its weight and the first tensor it returns.

    Args:
        layer: the layer.
        module: the module.
        original: runs it.
        given: its arguments.
    """
    watch = layer.only_watched()
    if watch is not None:
        return _followed(layer, watch, module, original, given)
    running = layer.begin(training=module.training)
    if running is None:
        return original()
    activation = next(_tensors(given), None)
    if activation is not None:
        running.see("activation", activation)
    weight = _weight_of(module)
    if weight is not None:
        running.see("weight", weight)
    returned = original()
    output = next(_tensors((returned,)), None)
    if output is not None:
        running.see("output", output)
        if output.requires_grad and running.wants("gradient"):
            hook: Callable[..., Any] = output.register_hook
            hook(running.look_back)
    return returned


def _followed(
    layer: LiveLayer,
    watch: LayerWatch,
    module: nn.Module,
    original: Callable[[], Any],
    given: Iterable[Any],
) -> Any:
    returned = original()
    output = next(_tensors((returned,)), None)
    if output is not None:
        made_of = {"activation": next(_tensors(given), None), "weight": _weight_of(module)}
        causes = {name: tensor for name, tensor in made_of.items() if tensor is not None}
        watch.follow(output, causes, layer.watched_pass())
    return returned


def _weight_of(module: nn.Module) -> Tensor | None:
    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, Tensor) else None


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors in values, also in tuples, lists, dicts and dict-like outputs."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, dict):
            yield from _tensors(value.values())
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
