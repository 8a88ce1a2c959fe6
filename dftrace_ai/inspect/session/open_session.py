"""The session that is open in this process, if one is, and the call that asks for it most often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.inspect.arguments import iteration_of
from dftrace_ai.inspect.errors import InspectAssertionError, InspectRuntimeError, InspectTypeError

if TYPE_CHECKING:
    from torch import Tensor

    from dftrace_ai.inspect.session.session import Session

session: Session | None = None
"""The open session."""

weights_are_reduced = True
"""Whether statistics of weights are merged over the tensor-parallel group."""


def needed_session() -> Session:
    """Return the open session."""
    if session is None:
        raise InspectRuntimeError(
            "tensor inspection is not initialized: call dftrace_ai.inspect.initialize first"
        )
    return session


def log_tensor_stats(
    layer_name: str,
    tensor: Tensor | None = None,
    tensor_name: str | None = None,
    skip_reduction: bool = False,
    reduction_group: Any = None,
    iteration: int | None = None,
) -> dict[str, Tensor]:
    """Log the statistics of a tensor, if the config asks for them in this iteration.

    The section of the config that selects the layer must have LogTensorStats at its top.
    Where ranks exchange what they saw, every member of the group must make the call.

    A tensor on a GPU is looked at there, and nothing waits for the GPU: the values stay on it, and
    are logged at a later step or call, or by `end_debug`, under the iteration of this call. In a
    CUDA graph that is being captured nothing is done, which a warning tells.

    Args:
        layer_name: name of the layer, as the config selects it.
        tensor: any shape, any dtype but complex ones.
        tensor_name: name of the tensor, as the config lists it.
        skip_reduction: log what this rank has; nothing is exchanged.
        reduction_group: the ranks whose records are merged, instead of the group that is set.
            All members log. Without any group, all ranks are merged and the last one logs.
        iteration: the iteration, instead of that which `step` counts.

    Returns:
        The statistics by name, 0-dimensional fp32 tensors on the device of the tensor; empty
        where nothing is due, or another rank logs. Where ranks merge tensors of a GPU and none
        has an element, they are NaN, and not logged.

    Raises:
        InspectRuntimeError: no session is open.
        InspectAssertionError: tensor or tensor_name is missing.
        InspectTypeError: the tensor is complex, or an argument is of another type.
        InspectValueError: the iteration is not accepted.

    Example::

        debug_api.log_tensor_stats("decoder.1", tensor=hidden, tensor_name="hidden")
    """
    try:
        # The way of nearly every call: one lookup, and nothing is due.
        if (
            iteration is None
            and tensor is not None
            and session.iteration < session.due[layer_name, tensor_name]  # type: ignore[union-attr,index]
        ):
            return {}
    except (AttributeError, KeyError, TypeError):
        pass  # no session is open, the tensor is new to it, or no name is: what follows tells
    present = needed_session()
    if tensor is None or tensor_name is None:
        missing = "tensor" if tensor is None else "tensor_name"
        raise InspectAssertionError(f"log_tensor_stats: the argument {missing} is missing")
    for argument, given in (("layer_name", layer_name), ("tensor_name", tensor_name)):
        if not isinstance(given, str):
            raise InspectTypeError(f"{argument}: a text is accepted, not {type(given).__name__}")
    if not isinstance(tensor, torch.Tensor):
        raise InspectTypeError(f"tensor: a torch.Tensor is needed, not {type(tensor).__name__}")
    if iteration is not None:
        iteration = iteration_of(iteration, "iteration")
    return present.explicit.log(
        layer_name,
        tensor,
        tensor_name,
        skip_reduction=skip_reduction,
        group=reduction_group,
        iteration=iteration,
    )
