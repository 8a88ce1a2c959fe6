"""What delayed scaling knows of a tensor, and ranks make of it: its amax, and the scale of that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dftrace_ai.inspect.collecting.observer import amax_of
from dftrace_ai.inspect.config import Schedule
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.fp8 import scale_of
from dftrace_ai.inspect.numerics.record import NEUTRAL, Record
from dftrace_ai.inspect.ranks.reduction import GroupMerger, Slot, SlotTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.attaching.fp8.recipes import Recipe
    from dftrace_ai.inspect.numerics.formats import Format
    from dftrace_ai.inspect.ranks.exchange import Groups

__all__ = ["AmaxHistory", "AmaxSharing", "DelayedScaling"]


class DelayedScaling:
    """What delayed scaling knows of one tensor, apart for forwards that gradients can follow."""

    # Other forwards, as those of an evaluation, leave no trace in the training. They run under the
    # scale that the training has made. Of a layer that has none, as a frozen one that runs without
    # gradients, they make a scale of their own.

    def __init__(self, recipe: Recipe, format: Format) -> None:  # noqa: A002 - of numbers
        self.format = format
        self.trained = AmaxHistory(recipe, format)
        """Of forwards with gradients, and of backwards."""
        self.aside = AmaxHistory(recipe, format)
        """Of forwards without, as long as there is nothing else."""

    def note(self, amax: float | Tensor, *, gradients: bool) -> None:
        """Take in the amax of a tensor of this step."""
        if gradients:
            self.trained.note(amax)
        elif not self.trained.known:
            self.aside.note(amax)

    def scale(self, *, gradients: bool) -> float | Tensor:
        """Return the scale in force in this step; arguments as for `note`."""
        return (self.trained if gradients or self.trained.known else self.aside).scale


class AmaxHistory:
    """The amax of one tensor in the last steps, and the scale that follows from them."""

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
        """End the step: its amax enters the history, of which the next scale is made."""
        # A step in which the tensor was not seen leaves everything as it is.
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


_ALWAYS = (Schedule(),)


class AmaxSharing:
    """Makes the amax of a step that of a group of ranks."""

    # Ranks may have different layers, and a layer may have run on some of them only.

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._group: Any = None
        self._merger: GroupMerger | None = None
        self._table = SlotTable({})

    def share(
        self,
        scalings: Mapping[tuple[str, str, Recipe], DelayedScaling],
        group: Any,
        *,
        anyway: bool,
    ) -> None:
        """Replace the amax of this step by the largest of the group."""
        # All members must call this alike. Without a recipe that shares nothing is exchanged. With
        # `anyway` it is exchanged although this rank may have nothing.
        shared = {}
        for (layer, tensor, recipe), scaling in scalings.items():
            if recipe.reduce_amax:
                shared[Slot(layer, tensor, str(recipe))] = scaling.trained
                if scaling.aside.present is not None:
                    shared[Slot(layer, tensor, f"{recipe} without gradients")] = scaling.aside
        if not (shared or anyway) or not self._groups.usable(group):
            return
        if self._merger is None or group is not self._group:
            self._merger, self._group = GroupMerger(group), group
        records = {
            slot: _as_record(float(history.present))
            for slot, history in shared.items()
            if history.present is not None
        }
        if list(shared) != list(self._table.slots):
            self._table = SlotTable(dict.fromkeys(shared, _ALWAYS))
        try:
            merged = self._merger.merge(self._table, records, 0)
        except Exception as error:  # noqa: BLE001 - other ranks must not end the training
            self._groups.lost(group, error)
            return
        for slot, history in shared.items():
            if merged[slot].n_total:
                history.present = amax_of(merged[slot])


def _as_record(amax: float) -> Record:
    """Return a record of one element, as far as its magnitude goes."""
    is_nan = math.isnan(amax)
    return NEUTRAL._replace(amax=0.0 if is_nan else amax, n_nan=float(is_nan), n_total=1.0)
