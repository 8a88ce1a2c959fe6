"""Records of weights on a device, which are all asked for when the first of a step is seen."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from dftrace_ai.inspect.collecting.rings import elements_of
from dftrace_ai.inspect.errors import InspectTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from dftrace_ai.inspect.collecting.rings import Asked, DeviceRing

__all__ = ["DueWeight", "WeightsAhead"]


class _Version(NamedTuple):
    address: int
    elements: int
    dtype: torch.dtype
    changes: int


def _version_of(elements: Tensor) -> _Version | None:
    if elements.is_inference():
        return None
    return _Version(elements.data_ptr(), elements.numel(), elements.dtype, elements._version)


class WeightsAhead:
    """Has the records of all weights that are due made together."""

    # Kernels over many small weights cost less than their launches. Nothing is told of a weight
    # whose layer does not run; one that is another, or has changed, when it does is looked at anew,
    # and by itself from then on: such are those that sharded training puts together for each use.

    def __init__(self) -> None:
        self._weights: list[DueWeight] = []
        self._begun: set[DeviceRing] = set()
        self._asked: dict[DueWeight, tuple[_Version, Asked]] = {}
        self._lock = threading.RLock()  # a signal's handler may run the model, too

    def weight(self, find: Callable[[], object], due: Callable[[], bool]) -> DueWeight:
        """Take in a weight."""
        # To find it must change nothing.
        weight = DueWeight(self, find, due)
        self._weights.append(weight)
        return weight

    def remove(self, weight: DueWeight) -> None:
        """Let go of a weight."""
        self._weights.remove(weight)
        self._asked.pop(weight, None)

    def of(self, weight: DueWeight, ring: DeviceRing, elements: Tensor) -> Asked | None:
        """Return the record that was asked for before, None where one has to be made now."""
        version = _version_of(elements)
        if version is None or not weight.stays:
            return None
        with self._lock:
            if ring not in self._begun:
                self._begun.add(ring)
                self._ask(ring, elements.device)
            before, asked = self._asked.pop(weight, (None, None))
        if before is not None:
            weight.stays = before == version
        return asked if weight.stays else None

    def _ask(self, ring: DeviceRing, device: torch.device) -> None:
        found: list[tuple[DueWeight, _Version, Tensor]] = []
        for weight in self._weights:
            if not (weight.stays and weight.due()):
                continue
            tensor = weight.find()
            if not isinstance(tensor, Tensor) or tensor.device != device:
                continue
            try:
                elements = elements_of(tensor)
            except InspectTypeError:
                continue  # it may have elements when its layer runs, which is told otherwise
            version = None if elements is None else _version_of(elements)
            if elements is not None and version is not None:
                found.append((weight, version, elements))
        if len(found) < 2:
            return
        everyone = ring.add_all([elements for _, _, elements in found])
        for (weight, version, _), asked in zip(found, everyone or (), strict=False):
            self._asked[weight] = version, asked

    def end_step(self) -> None:
        """Forget what was asked for and not looked at."""
        with self._lock:
            self._begun.clear()
            self._asked.clear()


class DueWeight:
    """A weight that may be looked at before its layer runs; see `WeightsAhead.weight`."""

    def __init__(
        self, ahead: WeightsAhead, find: Callable[[], object], due: Callable[[], bool]
    ) -> None:
        self._ahead = ahead
        self.find = find
        self.due = due
        self.stays = True
        """Whether it was the same up to now when its layer ran."""

    def asked(self, ring: DeviceRing, elements: Tensor) -> Asked | None:
        """Return the record that was asked for before, None where one has to be made now."""
        return self._ahead.of(self, ring, elements)
