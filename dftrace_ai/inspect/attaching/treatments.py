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
    """How a tensor is changed in a GEMM.

    Attributes:
        format: of the cast; None where a custom feature changes the tensor.
        margin: of a scale made of the tensor itself.
        delayed: what delayed scaling knows; None under another.
        feature: who asked for it; None is the recipe.
        custom: the custom feature that changes the tensor.
    """

    format: Format | None
    margin: int = 0
    delayed: DelayedScaling | None = None
    feature: str | None = None
    custom: Implementation | None = None


def described(treatment: Treatment | None) -> Description:
    """Say in the words of Transformer Engine's log how an operand goes into a GEMM."""
    if treatment is None:
        return "High precision"
    return "FP8 quantization" if treatment.feature is None else "modify_tensor()"


Table = dict[tuple[str, str], Treatment]
"""By (gemm, tensor)."""
