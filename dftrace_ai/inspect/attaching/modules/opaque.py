"""Layers in compiled code: operators that the compiler does not look into.

A step of a layer is `begin`, which says that it runs and sees what goes in, and then `gemm` or
`look` for what comes out. Objects pass through the graph as tokens. `begin` is said to change the
token of the station, so that two alike are not made one, and none is left out.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dftrace_ai.inspect.attaching.modules.gemms import (
    Operands,
    as_autocast,
    backward_gemms,
    forward_gemm,
    rows_of,
)
from dftrace_ai.inspect.attaching.passes import begin_pass

if TYPE_CHECKING:
    from dftrace_ai.inspect.attaching.passes import Pass


_numbers = itertools.count(1)


class _Holder(bytearray):
    """The memory of a token; it lives as long as the tensor, and the object as long as it."""

    held: Any = None


_holders: weakref.WeakValueDictionary[int, _Holder] = weakref.WeakValueDictionary()


def token_of(held: object) -> Tensor:
    """Return a tensor that stands for an object, and keeps it alive."""
    number = next(_numbers)
    holder = _Holder(number.to_bytes(8, sys.byteorder))
    holder.held = held
    _holders[number] = holder
    with torch.inference_mode(mode=False):
        return torch.frombuffer(holder, dtype=torch.int64)


def held_by(token: Tensor) -> Any:
    """Return the object that a token stands for, None where there is none any more."""
    holder = _holders.get(int(token))
    return None if holder is None else holder.held


def compiled_linear(station: Tensor, part: str, operands: Operands) -> Tensor:
    """Run a linear layer from code that is being compiled."""
    activation, weight, bias, transposed, whole = operands
    x, w = as_autocast(activation), as_autocast(weight)
    seen = weight if whole is None else whole
    is_operand = w is weight
    begun = _begin(x.detach(), seen.detach(), station, part, is_operand, torch.is_grad_enabled())
    found: Tensor = _gemm(
        x,
        w,
        None if bias is None else as_autocast(bias),
        None if whole is None else as_autocast(whole.detach()),
        begun,
        transposed,
    )
    return found


def compiled_begin(station: Tensor, activation: Tensor | None, weight: Tensor | None) -> Tensor:
    """Begin to run a layer that is only looked at, from code that is being compiled."""
    found: Tensor = _begin(
        None if activation is None else activation.detach(),
        None if weight is None else weight.detach(),
        station,
        "",
        True,
        torch.is_grad_enabled(),
    )
    return found


def compiled_look(
    output: Tensor, begun: Tensor, activation: Tensor | None, weight: Tensor | None
) -> Tensor:
    """Look at what comes out of a layer, and at its gradient; return the same numbers."""
    causes = [None if one is None else one.detach() for one in (activation, weight)]
    found: Tensor = _look(output, begun, *causes)
    return found


def pass_of(begun: Tensor) -> Pass | None:
    """Return the pass of a token, None where nothing is attached any more."""
    found: Pass | None = held_by(begun)
    return found


@torch.library.custom_op(
    "dftrace_ai::begin",
    mutates_args=("station",),
    schema=(
        "(Tensor? activation, Tensor? weight, Tensor(a!) station, str part, bool is_operand,"
        " bool gradients) -> Tensor"
    ),
)
def _begin(
    activation: Tensor | None,
    weight: Tensor | None,
    station: Tensor,
    part: str,
    is_operand: bool,
    gradients: bool,  # when it was compiled: where operators run, none are recorded
) -> Tensor:
    reference = held_by(station)
    found = None if reference is None else reference()
    module = None if found is None else found.module
    if found is None or module is None or part not in found.layers:
        # Detached since it was compiled, which the next call will notice.
        return token_of(None)
    layer = found.layers[part]
    running = begin_pass(layer, training=module.training, gradients=gradients, anyway=True)
    if activation is not None:
        running.see("activation", activation)
    if weight is not None:
        running.see("weight", weight, is_operand=is_operand)
    return token_of(running)


_begin.register_fake(lambda _activation, _weight, station, *_others: torch.empty_like(station))


@torch.library.custom_op(
    "dftrace_ai::gemm",
    mutates_args=(),
    schema=(
        "(Tensor x, Tensor weight, Tensor? bias, Tensor? whole, Tensor begun, bool transposed)"
        " -> Tensor"
    ),
)
def _gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    whole: Tensor | None,
    begun: Tensor,
    transposed: bool,
) -> Tensor:
    running = pass_of(begun)
    operands = Operands(x, weight, bias, transposed, whole)
    if running is None:
        factor = weight.t() if transposed else weight
        return torch.nn.functional.linear(x, factor, bias).contiguous()
    running.made_of(x, weight)
    return forward_gemm(running, operands).contiguous()


@_gemm.register_fake
def _gemm_shape(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
    transposed = others[-1]
    return x.new_empty((*x.shape[:-1], weight.size(1 if transposed else 0)))


@torch.library.custom_op(
    "dftrace_ai::gemm_backward",
    mutates_args=(),
    schema=(
        "(Tensor gradient, Tensor x, Tensor weight, Tensor? whole, Tensor begun, bool transposed,"
        " bool[] needs) -> Tensor[]"
    ),
)
def _gemm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    whole: Tensor | None,
    begun: Tensor,
    transposed: bool,
    needs: list[bool],
) -> list[Tensor]:
    found = _gradients(gradient, Operands(x, weight, None, transposed, whole), begun, needs)
    # What is returned must not be an argument.
    return [
        gradient.new_empty(0)
        if one is None
        else one.clone()
        if one is gradient
        else one.contiguous()
        for one in found
    ]


def _gradients(
    gradient: Tensor, operands: Operands, begun: Tensor, needs: list[bool]
) -> tuple[Tensor | None, ...]:
    running = pass_of(begun)
    if running is not None:
        return backward_gemms(running, operands, gradient, needs)
    rows = rows_of(gradient)
    weight = operands.weight.t() if operands.transposed else operands.weight
    of_weight = rows.t().mm(rows_of(operands.activation))
    return (
        rows.mm(weight).reshape(operands.activation.shape) if needs[0] else None,
        (of_weight.t() if operands.transposed else of_weight) if needs[1] else None,
        rows.sum(0) if needs[2] else None,
    )


@_gemm_backward.register_fake
def _gemm_backward_shape(gradient: Tensor, x: Tensor, weight: Tensor, *others: Any) -> list[Tensor]:
    needs = others[-1]
    shapes = (x.shape, weight.shape, gradient.shape[-1:])
    return [
        gradient.new_empty(shape if needed else (0,))
        for shape, needed in zip(shapes, needs, strict=True)
    ]


def _keep_operands(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, whole, begun, ctx.transposed = inputs
    ctx.save_for_backward(x, weight, whole, begun)


def _gemm_backwards(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, whole, begun = ctx.saved_tensors
    needs = list(ctx.needs_input_grad[:3])
    found: Any
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        # To be differentiated again, by a backend that runs what torch runs.
        operands = Operands(x, weight, None, ctx.transposed, whole)
        found = _gradients(gradient, operands, begun, needs)
    else:
        found = _gemm_backward(gradient, x, weight, whole, begun, ctx.transposed, needs)
    of = [one if needed else None for one, needed in zip(found, needs, strict=True)]
    return (*of, None, None, None)


_gemm.register_autograd(_gemm_backwards, setup_context=_keep_operands)


@torch.library.custom_op(
    "dftrace_ai::look",
    mutates_args=(),
    schema="(Tensor output, Tensor begun, Tensor? activation, Tensor? weight) -> Tensor",
)
def _look(
    output: Tensor, begun: Tensor, activation: Tensor | None, weight: Tensor | None
) -> Tensor:
    running = pass_of(begun)
    if running is not None:
        running.made_of(activation, weight)
        running.see("output", output)
    return output.clone()


_look.register_fake(lambda output, *_others: torch.empty_like(output))


@torch.library.custom_op(
    "dftrace_ai::look_back", mutates_args=(), schema="(Tensor gradient, Tensor begun) -> Tensor"
)
def _look_back(gradient: Tensor, begun: Tensor) -> Tensor:
    running = pass_of(begun)
    if running is not None:
        running.look_back(gradient)
    return gradient.clone()


_look_back.register_fake(lambda gradient, _begun: torch.empty_like(gradient))


def _keep_token(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _looked_back(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
    (begun,) = ctx.saved_tensors
    return _look_back(gradient, begun), None, None, None


_look.register_autograd(_looked_back, setup_context=_keep_token)
_look_back.register_autograd(lambda _ctx, gradient: (gradient, None))
