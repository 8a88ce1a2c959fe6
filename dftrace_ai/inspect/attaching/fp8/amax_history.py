"""What delayed scaling knows of a tensor: its amax in earlier steps, and the scale made of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.fp8 import scale_of

if TYPE_CHECKING:
    from dftrace_ai.inspect.attaching.fp8.recipes import Recipe
    from dftrace_ai.inspect.numerics.formats import Format

__all__ = ["AmaxHistory", "DelayedScaling"]


class DelayedScaling:
    """What delayed scaling knows of one tensor, apart for forwards that gradients can follow.

    Other forwards, as those of an evaluation, leave no trace in the training. They run under the
    scale that the training has made. Of a layer that has none, as a frozen one that runs without
    gradients, they make a scale of their own.

    Args:
        recipe: of delayed scaling.
        format: of the tensor.
    """

    def __init__(self, recipe: Recipe, format: Format) -> None:  # noqa: A002 - of numbers
        self.format = format
        self.trained = AmaxHistory(recipe, format)
        """Of forwards with gradients, and of backwards."""
        self.aside = AmaxHistory(recipe, format)
        """Of forwards without, as long as there is nothing else."""

    def note(self, amax: float | Tensor, *, gradients: bool) -> None:
        """Take in the amax of a tensor of this step.

        Args:
            amax: of the tensor; one that is computed again may be told again.
            gradients: whether it was seen where gradients are recorded, or are one.
        """
        if gradients:
            self.trained.note(amax)
        elif not self.trained.known:
            self.aside.note(amax)

    def scale(self, *, gradients: bool) -> float | Tensor:
        """Return the scale in force in this step; arguments as for `note`."""
        return (self.trained if gradients or self.trained.known else self.aside).scale


class AmaxHistory:
    """The amax of one tensor in the last steps, and the scale that follows from them.

    Args:
        recipe: of delayed scaling.
        format: of the tensor.
    """

    def __init__(self, recipe: Recipe, format: Format) -> None:  # noqa: A002 - of numbers
        self.recipe = recipe
        self.format = format
        self.scale: float | Tensor = 1.0
        """What is in force in this step."""
        self.present: float | Tensor | None = None
        """The amax of this step up to now, None where the tensor was not seen."""
        self._ring: Tensor | None = None
        self._next = 0

    @property
    def known(self) -> bool:
        """Whether a step has ended in which the tensor was seen."""
        return self._ring is not None

    def note(self, amax: float | Tensor) -> None:
        """Take in the amax of a tensor of this step; NaN stays NaN, and twice is as once."""
        if self.present is None:
            self.present = amax
        elif isinstance(amax, Tensor) or isinstance(self.present, Tensor):
            self.present = torch.maximum(_number(amax), _number(self.present))
        elif math.isnan(amax) or math.isnan(self.present):
            self.present = math.nan
        else:
            self.present = max(amax, self.present)

    def roll(self) -> None:
        """End the step: its amax enters the history, of which the next scale is made.

        A step in which the tensor was not seen leaves everything as it is.
        """
        amax = self.present
        if amax is None:
            return
        self.present = None
        if self._ring is None:
            device = amax.device if isinstance(amax, Tensor) else torch.device("cpu")
            length = self.recipe.amax_history_len
            # What is made in inference mode cannot be written to outside of it.
            with torch.inference_mode(mode=False):
                self._ring = torch.zeros(length, dtype=torch.float32, device=device)
        self._ring[self._next] = amax
        self._next = (self._next + 1) % len(self._ring)
        most = self._ring.amax() if self.recipe.amax_compute_algo == "max" else amax
        if isinstance(most, Tensor) and not most.is_cpu:
            self.scale = plain.scale_of(most, self.format, self.recipe.margin, self.scale)
        else:
            before = float(self.scale)
            self.scale = scale_of(float(most), self.format, self.recipe.margin, before)


def _number(amax: float | Tensor) -> Tensor:
    if isinstance(amax, Tensor):
        return amax
    return torch.tensor(amax, dtype=torch.float32, device="cpu")
