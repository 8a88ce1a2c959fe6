"""Places where a layer runs, but not on numbers that can be looked at or changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from dftrace_ai.inspect.nonfinite import MARKS

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")

# Torch has no other way to ask whether vmap, grad and the like run.
_transforms = torch._C._functorch.peek_interpreter_stack
_is_batched = torch._C._functorch.is_legacy_batchedtensor

# Nor whether the engine of autograd runs.
_graph_task = torch._C._current_graph_task_id


def _seems_to_export() -> bool:
    """Tell what `torch.compiler.is_exporting` tells, for a torch that has no such function yet."""
    if torch.compiler.is_compiling():  # the export that runs a model; the compiler sets no flag
        return True
    # The export that compiles: alone it takes tensors with numbers in among those without.
    tracing: Any = torch._guards.TracingContext.try_get()
    return bool(getattr(getattr(tracing, "fake_mode", None), "allow_non_fake_inputs", False))


_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", _seems_to_export)


def not_compiled(function: Function) -> Function:
    """Let the compiler leave a function out."""
    disable: Callable[[Function], Function] = torch.compiler.disable
    return disable(function)


def is_computed_again() -> bool:
    """Tell whether a forward runs within a backward: a checkpoint that is computed again."""
    return _graph_task() != -1


def transformed(tensor: Tensor) -> bool:
    """Tell whether torch.func is at work on a tensor, or a backward of many gradients at once."""
    return _transforms() is not None or _is_batched(tensor)


def _constant(function: Function) -> Function:
    """Let the compiler call a function, and take what it returns as a constant."""
    # Torch 2.4 keeps that as a global variable of the function's name, beside what it compiles.
    function.__code__ = function.__code__.replace(co_name=f"dftrace_{function.__name__}")
    taken: Callable[[Function], Function] = torch.compiler.assume_constant_result
    return taken(function)


# The compiler calls it when it comes here, and takes the answer as given: it compiles anew for
# another transform anyhow.
@_constant
def left_alone() -> bool:
    """Tell whether layers are compiled for a place in which they are neither seen nor changed."""
    where = (
        "torch.export" if _is_exporting() else "torch.func" if _transforms() is not None else None
    )
    if where is not None and MARKS.tell is not None and MARKS.told.first("left alone", where):
        MARKS.tell(f"Layers are compiled for {where}: there they are neither seen nor changed.")
    return where is not None


def _has_no_numbers(given: Tensor) -> bool:
    """Tell whether a compiler has put a tensor in the place of those that it compiles for."""
    # Its module loads half of the compiler: where nobody has loaded it, there is no such tensor.
    functional: Any = sys.modules.get("torch._subclasses.functional_tensor")
    return isinstance(given, FakeTensor) or (
        functional is not None and isinstance(given, functional.FunctionalTensor)
    )


def unreachable(given: Any, *, there: bool = False) -> str | None:
    """Return where or on what a layer runs now, if it cannot be looked into."""
    # It is words for a message; None where everything is as usual. With `there` the device of the
    # tensor makes the records, so that no number is read here.
    if not isinstance(given, Tensor):
        return None if given is None else f"a {type(given).__name__} in place of a tensor"
    for where, holds in (
        ("torch.func", transformed(given)),
        ("forward-mode differentiation", forward_ad._current_level >= 0),
        ("torch.jit.trace", torch._C._get_tracing_state() is not None),
        ("torch.export", _is_exporting()),
        ("tensors without numbers", _has_no_numbers(given) or (given.is_meta and not there)),
        ("complex numbers", given.is_complex()),
        ("nested tensors", given.is_nested),
        ("sparse tensors", given.layout is not torch.strided),
    ):
        if holds:
            return where
    return None
