"""MultiheadAttention with its projections as layers, and the fast paths that would bypass them."""

from __future__ import annotations

import sys
import threading
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from dftrace_ai.inspect.attaching.modules.gemms import Call, Operands, run_linear
from dftrace_ai.inspect.attaching.modules.opaque import compiled_linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.attaching.layer import LiveLayer


class _Running(NamedTuple):
    layers: Mapping[str, LiveLayer]
    module: nn.MultiheadAttention
    station: Tensor


class _Current(threading.local):
    """The attentions that run in this thread, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[_Running] = []


_current = _Current()
_compiled: list[_Running] = []
"""Those of code that is being compiled, where nothing belongs to a thread."""


def _innermost() -> _Running:
    return _compiled[-1] if torch.compiler.is_compiling() else _current.stack[-1]


def _linear(part: str, given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    layers, module, station = _innermost()
    packed = module.in_proj_weight if part == "in_proj" else None
    # Attention over two inputs takes the packed weight in slices.
    whole = None if weight is packed else packed
    operands = Operands(given, weight, bias, whole_weight=whole)
    if torch.compiler.is_compiling():
        return compiled_linear(station, part, operands)
    return run_linear(
        layers[part],
        operands,
        lambda: functional.linear(given, weight, bias),
        training=module.training,
    )


def _in_projection(given: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    module = _innermost().module
    if module._qkv_same_embed_dim:
        return _linear("in_proj", given, weight, bias)
    if weight is module.q_proj_weight:
        return _linear("q_proj", given, weight, bias)
    part = "k_proj" if weight is module.k_proj_weight else "v_proj"
    return _linear(part, given, weight, bias)


def _out_projection(given: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _linear("out_proj", given, weight, bias)


def _module_like(names: Mapping[str, Any], name: str, **others: Any) -> ModuleType:
    """Return a module with the names of another one, but for some of them."""
    module = ModuleType(f"{__name__}.{name}")
    own = {key: one for key, one in vars(module).items() if key.startswith("__")}
    vars(module).update({**names, **own, **others})
    # There the compiler looks for what a function calls.
    sys.modules[module.__name__] = module
    return module


def _with_globals(function: Any, **others: Any) -> Any:
    """Return a copy of a function that finds some of its global names elsewhere."""
    module = _module_like(function.__globals__, f"for_{function.__name__}", **others)
    copy = FunctionType(
        function.__code__,
        vars(module),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = module.__name__
    return copy


def _forward_with_layers() -> Any:
    torch_functional: Any = functional
    attention = _with_globals(
        torch_functional.multi_head_attention_forward,
        linear=_out_projection,
        _in_projection_packed=_with_globals(
            torch_functional._in_projection_packed, linear=_in_projection
        ),
        _in_projection=_with_globals(torch_functional._in_projection, linear=_in_projection),
    )
    with_layers = _module_like(
        vars(functional), "functional", multi_head_attention_forward=attention
    )
    return _with_globals(nn.MultiheadAttention.forward, F=with_layers)


_forward = _forward_with_layers()


def run_attention(
    layers: Mapping[str, LiveLayer], module: nn.MultiheadAttention, station: Tensor, call: Call
) -> Any:
    """Run an attention as torch does, with each projection run as a layer."""
    # The layers are by part: in_proj, or q_proj, k_proj and v_proj; and out_proj.
    stack = _compiled if torch.compiler.is_compiling() else _current.stack
    stack.append(_Running(layers, module, station))
    try:
        return _forward(module, *call.args, **call.kwargs)
    finally:
        stack.pop()


class _FastPath:
    """Switches the fused kernels off that take weights without running their modules."""

    # The switch is that of the process. It is given back as it was found.

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
