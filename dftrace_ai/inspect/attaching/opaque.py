"""Linear layers in compiled code: an operator that the compiler does not look into."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dftrace_ai.inspect.attaching.gemms import Operands, as_autocast, backward_gemms, forward_gemm

if TYPE_CHECKING:
    from dftrace_ai.inspect.attaching.passes import Pass
    from dftrace_ai.inspect.attaching.swap import Station

__all__ = ["STATIONS", "run_opaque"]

STATIONS: weakref.WeakValueDictionary[int, Station] = weakref.WeakValueDictionary()
"""What the operators find by number."""

_passes: weakref.WeakKeyDictionary[Station, Pass] = weakref.WeakKeyDictionary()
"""The latest pass of each module: the backward operator is not told which forward it follows."""


def run_opaque(
    number: int, activation: Tensor, weight: Tensor, bias: Tensor | None, *, transposed: bool
) -> Tensor:
    """Run a linear layer from code that is being compiled.

    Args:
        number: of its station.
        activation: as for `Operands`.
        weight: as for `Operands`.
        bias: as for `Operands`.
        transposed: as for `Operands`.
    """
    found: Tensor = _linear(
        as_autocast(activation),
        as_autocast(weight),
        None if bias is None else as_autocast(bias),
        number,
        transposed,
    )
    return found


def _pass_of(number: int) -> Pass | None:
    station = STATIONS.get(number)
    return None if station is None else _passes.get(station)


@torch.library.custom_op(
    "dftrace_ai::linear",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, int station, bool transposed) -> Tensor",
)
def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, station: int, transposed: bool
) -> Tensor:
    operands = Operands(x, weight, bias, transposed)
    found = STATIONS.get(station)
    module = None if found is None else found.module
    if found is None or module is None:
        # Detached since it was compiled, which the next call will notice.
        return _plain(operands)
    running = found.layers[""].begin(training=module.training, anyway=True)
    if running is None:
        return _plain(operands)
    _passes[found] = running
    running.see("activation", x)
    parameter = getattr(module, "weight", weight)
    running.see("weight", parameter, is_operand=parameter.dtype is weight.dtype)
    return forward_gemm(running, operands).contiguous()


def _plain(operands: Operands) -> Tensor:
    weight = operands.weight.t() if operands.transposed else operands.weight
    return torch.nn.functional.linear(operands.activation, weight, operands.bias).contiguous()


@_linear.register_fake
def _linear_shape(
    x: Tensor, weight: Tensor, bias: Tensor | None, station: int, transposed: bool
) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.size(1 if transposed else 0)))


@torch.library.custom_op(
    "dftrace_ai::linear_backward",
    mutates_args=(),
    schema=(
        "(Tensor gradient, Tensor x, Tensor weight, int station, bool transposed, bool[] needs)"
        " -> Tensor[]"
    ),
)
def _linear_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    station: int,
    transposed: bool,
    needs: list[bool],
) -> list[Tensor]:
    running = _pass_of(station)
    operands = Operands(x, weight, None, transposed)
    if running is None:
        found = _plain_backward(operands, gradient, needs)
    else:
        found = backward_gemms(running, operands, gradient, needs)
    # What is returned must not be an argument.
    return [
        gradient.new_empty(0)
        if one is None
        else one.clone()
        if one is gradient
        else one.contiguous()
        for one in found
    ]


def _plain_backward(
    operands: Operands, gradient: Tensor, needs: list[bool]
) -> tuple[Tensor | None, ...]:
    rows = gradient.reshape(-1, gradient.size(-1))
    x = operands.activation.reshape(-1, operands.activation.size(-1))
    weight = operands.weight.t() if operands.transposed else operands.weight
    of_weight = rows.t().mm(x)
    return (
        rows.mm(weight).reshape(operands.activation.shape) if needs[0] else None,
        (of_weight.t() if operands.transposed else of_weight) if needs[1] else None,
        rows.sum(0) if needs[2] else None,
    )


@_linear_backward.register_fake
def _linear_backward_shape(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    station: int,
    transposed: bool,
    needs: list[bool],
) -> list[Tensor]:
    shapes = (x.shape, weight.shape, gradient.shape[-1:])
    return [
        gradient.new_empty(shape if needed else (0,))
        for shape, needed in zip(shapes, needs, strict=True)
    ]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, ctx.station, ctx.transposed = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    needs = list(ctx.needs_input_grad[:3])
    found = _linear_backward(gradient, x, weight, ctx.station, ctx.transposed, needs)
    of = [one if needed else None for one, needed in zip(found, needs, strict=True)]
    return (*of, None, None)


_linear.register_autograd(_backward, setup_context=_keep)
