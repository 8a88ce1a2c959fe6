"""The amax of delayed scaling becomes that of all ranks, where the recipe says so."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.collecting.observer import amax_of
from dftrace_ai.inspect.config import Schedule
from dftrace_ai.inspect.numerics.record import NEUTRAL, Record
from dftrace_ai.inspect.ranks.reduction import GroupMerger, Slot, SlotTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.attaching.fp8.amax_history import DelayedScaling
    from dftrace_ai.inspect.attaching.fp8.recipes import Recipe
    from dftrace_ai.inspect.ranks.exchange import Groups

__all__ = ["AmaxSharing"]

_ALWAYS = (Schedule(),)


class AmaxSharing:
    """Makes the amax of a step that of a group of ranks.

    Ranks may have different layers, and a layer may have run on some of them only.

    Args:
        groups: the groups of ranks that can be used; after a failure each rank has its own amax.
    """

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
        """Replace the amax of this step by the largest of the group.

        All members must call this alike. Without a recipe that shares nothing is exchanged.

        Args:
            scalings: by layer, tensor and recipe.
            group: a process group, or None for all processes.
            anyway: exchange although this rank may have nothing.
        """
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
