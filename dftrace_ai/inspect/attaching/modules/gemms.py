"""The three GEMMs of a linear layer, with what is changed and seen on the way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from dftrace_ai.inspect.attaching.passes import begin_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dftrace_ai.inspect.attaching.layer import LiveLayer
    from dftrace_ai.inspect.attaching.passes import Pass

# Asked beforehand: torch before 2.12 cannot compile the question.
_WITH_AUTOCAST = frozenset(
    device
    for device in (
        *("cpu", "cuda", "hpu", "ipu", "maia", "mps", "mtia", "xla", "xpu"),
        torch._C._get_privateuse1_backend_name(),
    )
    if torch.amp.is_autocast_available(device)
)


class Call(NamedTuple):
    """What a module was called with."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def values(self) -> tuple[Any, ...]:
        """Return all of it."""
        return (*self.args, *self.kwargs.values())


class Operands(NamedTuple):
    """What goes into a linear layer."""

    activation: Tensor  # shape (..., in)
    weight: Tensor  # shape (out, in), or (in, out) where it is transposed
    bias: Tensor | None  # shape (out,), or None
    transposed: bool = False  # whether the weight is (in, out)
    whole_weight: Tensor | None = None  # the parameter that the weight is a part of, else None


def run_linear(
    layer: LiveLayer, operands: Operands, original: Callable[[], Tensor], *, training: bool
) -> Tensor:
    """Run a linear layer as its plan says."""
    # Where nothing is changed the original runs, and is only looked at.
    running = begin_pass(layer, training=training, gradients=torch.is_grad_enabled())
    if running is None:
        return original()
    if running.needs_gemms():
        return _run_gemms(running, operands)
    activation = operands.activation
    if running.inspects("activation"):
        activation = as_autocast(activation)
    running.see("activation", activation)
    running.see("weight", _observed_weight(operands))
    output = original()
    running.see("output", output)
    if output.requires_grad and running.wants("gradient"):
        hook: Callable[..., Any] = output.register_hook
        hook(running.look_back)
    return output


def _observed_weight(operands: Operands) -> Tensor:
    return operands.weight if operands.whole_weight is None else operands.whole_weight


def _run_gemms(running: Pass, operands: Operands) -> Tensor:
    activation = as_autocast(operands.activation)
    weight = as_autocast(operands.weight)
    bias = None if operands.bias is None else as_autocast(operands.bias)
    running.see("activation", activation)
    running.see("weight", _observed_weight(operands), is_operand=weight is operands.weight)
    whole = operands.whole_weight
    if whole is not None:
        whole = as_autocast(whole.detach())
    apply: Callable[..., Tensor] = _Gemms.apply
    return apply(activation, weight, bias, running, operands.transposed, whole)


def as_autocast(tensor: Tensor) -> Tensor:
    """Return a tensor in the format that autocast gives to operands of GEMMs."""
    device = tensor.device.type
    if device not in _WITH_AUTOCAST or not torch.is_autocast_enabled(device):
        return tensor
    if not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def rows_of(tensor: Tensor) -> Tensor:
    """Return a matrix of a tensor: what it is by its last dimension."""
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.size(-1))


def _is_column_major(matrix: Tensor) -> bool:
    return matrix.stride() == (1, matrix.size(0))


class _Gemms(torch.autograd.Function):
    """Y = X W^T + b, dX = G W, dW = G^T X; without changes the same bits as torch's own."""

    @staticmethod
    def forward(
        ctx: Any,
        activation: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        running: Pass,
        transposed: bool,
        whole: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(activation, weight, whole)
        ctx.running = running
        ctx.transposed = transposed
        return forward_gemm(running, Operands(activation, weight, bias, transposed, whole))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        activation, weight, whole = ctx.saved_tensors
        operands = Operands(activation, weight, None, ctx.transposed, whole)
        needs = ctx.needs_input_grad[:3]
        return (*backward_gemms(ctx.running, operands, gradients[0], needs), None, None, None)


def forward_gemm(running: Pass, operands: Operands) -> Tensor:
    """Return the output of a layer whose activation and weight have been seen."""
    activation, weight, bias, transposed, whole = operands
    x = running.changed("fprop", "activation", activation)
    w = running.changed("fprop", "weight", weight, whole)
    if transposed:
        rows = rows_of(x)
        output = torch.mm(rows, w) if bias is None else torch.addmm(bias, rows, w)
        output = output.view(*x.shape[:-1], w.size(-1))
    else:
        output = torch.nn.functional.linear(x, w, bias)
    running.see("output", output)
    return running.changed("fprop", "output", output)


def backward_gemms(
    running: Pass, operands: Operands, gradient: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of activation, weight and bias, None where they are not needed."""
    activation, weight, _, transposed, whole = operands
    running.see("gradient", gradient)
    rows = rows_of(gradient)
    of_activation = of_weight = of_bias = None
    if needs[0]:
        of_activation = _dgrad(
            running.changed("dgrad", "gradient", rows),
            running.changed("dgrad", "weight", weight, whole),
            activation,
            transposed=transposed,
        )
        running.see("dgrad", of_activation)
        of_activation = running.changed("dgrad", "dgrad", of_activation)
    if needs[1]:
        x = running.changed("wgrad", "activation", activation)
        of_weight = _wgrad(
            running.changed("wgrad", "gradient", rows), rows_of(x), weight, transposed=transposed
        )
        running.see("wgrad", of_weight)
        of_weight = running.changed("wgrad", "wgrad", of_weight)
    if needs[2]:
        of_bias = gradient if gradient.dim() == 1 else rows.sum(0)
    return of_activation, of_weight, of_bias


def _dgrad(rows: Tensor, weight: Tensor, activation: Tensor, *, transposed: bool) -> Tensor:
    # The order of the factors is that of torch, which keeps the layout of the activation.
    inner = weight.t() if transposed else weight
    if activation.dim() == 2 and _is_column_major(activation):
        return inner.t().mm(rows.t()).t()
    return rows.mm(inner).reshape(activation.shape)


def _wgrad(rows: Tensor, x: Tensor, weight: Tensor, *, transposed: bool) -> Tensor:
    factor = weight if transposed else weight.t()
    if _is_column_major(factor):
        found = rows.t().mm(x)
        return found.t() if transposed else found
    found = x.t().mm(rows)
    return found if transposed else found.t()
