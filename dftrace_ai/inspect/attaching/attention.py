"""MultiheadAttention with its projections as layers, and the fast paths that would bypass them."""

from __future__ import annotations

import threading
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dftrace_ai.inspect.attaching.gemms import Operands, run_linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.attaching.layer import LiveLayer

__all__ = ["FAST_PATH", "run_attention"]


class _Current(threading.local):
    """The attentions that run in this thread, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[tuple[Mapping[str, LiveLayer], nn.MultiheadAttention]] = []


_current = _Current()


def _linear(part: str, given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    layers, module = _current.stack[-1]
    packed = module.in_proj_weight if part == "in_proj" else None
    return run_linear(
        layers[part],
        # Attention over two inputs takes the packed weight in slices.
        Operands(given, weight, bias, whole_weight=None if weight is packed else packed),
        lambda: functional.linear(given, weight, bias),
        training=module.training,
    )


def _in_projection(given: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    module = _current.stack[-1][1]
    if module._qkv_same_embed_dim:
        return _linear("in_proj", given, weight, bias)
    parts = ("q_proj", "k_proj", "v_proj")
    part = next(one for one in parts if getattr(module, f"{one}_weight") is weight)
    return _linear(part, given, weight, bias)


def _out_projection(given: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _linear("out_proj", given, weight, bias)


def _with_globals(function: Any, **others: Any) -> Any:
    """Return a copy of a function that finds some of its global names elsewhere."""
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **others},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class _FunctionalWith(SimpleNamespace):
    """torch.nn.functional, but for some of its functions."""

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name)


def _forward_with_layers() -> Any:
    torch_functional: Any = functional
    attention = _with_globals(
        torch_functional.multi_head_attention_forward,
        linear=_out_projection,
        _in_projection_packed=_with_globals(
            torch_functional._in_projection_packed,
            linear=_in_projection,
        ),
        _in_projection=_with_globals(torch_functional._in_projection, linear=_in_projection),
    )
    return _with_globals(
        nn.MultiheadAttention.forward, F=_FunctionalWith(multi_head_attention_forward=attention)
    )


_forward = _forward_with_layers()


def run_attention(
    layers: Mapping[str, LiveLayer],
    module: nn.MultiheadAttention,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run an attention as torch does, with each projection run as a layer.

    Args:
        layers: the layers by part: in_proj, or q_proj, k_proj and v_proj; and out_proj.
        module: the attention.
        args: of its forward.
        kwargs: of its forward.
    """
    _current.stack.append((layers, module))
    try:
        return _forward(module, *args, **kwargs)
    finally:
        _current.stack.pop()


class _FastPath:
    """Switches the fused kernels off that take weights without running their modules.

    The switch is that of the process. It is given back as it was found.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._before = True

    def hold(self) -> None:
        """Keep it off until as many calls of `release`."""
        if not self._holders:
            self._before = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        self._holders += 1

    def release(self) -> None:
        """Let it be as it was, unless others hold it, too."""
        self._holders -= 1
        if not self._holders:
            torch.backends.mha.set_fastpath_enabled(self._before)


FAST_PATH = _FastPath()
