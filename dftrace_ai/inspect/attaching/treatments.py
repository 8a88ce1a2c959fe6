"""How tensors are changed in GEMMs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from dftrace_ai.inspect.attaching.custom import Implementation
    from dftrace_ai.inspect.attaching.fp8.amax_history import DelayedScaling
    from dftrace_ai.inspect.numerics.formats import Format

__all__ = ["Table", "Treatment", "described"]

Description = Literal["FP8 quantization", "High precision", "modify_tensor()"]


class Treatment(NamedTuple):
    """How a tensor is changed in a GEMM."""

    format: Format | None  # of the cast; None where a custom feature changes the tensor
    margin: int = 0  # of a scale made of the tensor itself
    delayed: DelayedScaling | None = None  # what delayed scaling knows; None under another
    feature: str | None = None  # who asked for it; None is the recipe
    custom: Implementation | None = None  # the custom feature that changes the tensor


def described(treatment: Treatment | None) -> Description:
    """Say in the words of Transformer Engine's log how an operand goes into a GEMM."""
    if treatment is None:
        return "High precision"
    return "FP8 quantization" if treatment.feature is None else "modify_tensor()"


Table = dict[tuple[str, str], Treatment]
"""By (gemm, tensor)."""
