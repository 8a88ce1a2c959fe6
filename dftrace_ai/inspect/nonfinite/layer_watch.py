"""The watch over one layer: its output and its gradient, and what they were made of."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.nonfinite.marks import MARKS, Counts, Place
from dftrace_ai.inspect.numerics.collect import collect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from dftrace_ai.inspect.nonfinite.device_counts import DeviceCounts
    from dftrace_ai.inspect.numerics.record import Record

__all__ = ["LayerWatch"]

WATCHED = ("output", "gradient")
CAUSES = ("activation", "weight")


class LayerWatch:
    """The watch over one layer."""

    def __init__(
        self, name: str, elsewhere: DeviceCounts, failed: Callable[[str, str, Exception], None]
    ) -> None:
        self.name = name
        self._elsewhere = elsewhere
        self._failed = failed
        self._made_of: dict[str, weakref.ref[Tensor]] = {}

    def wants(self, tensor_name: str) -> bool:
        """Tell whether a tensor is looked at."""
        return tensor_name in WATCHED or tensor_name in CAUSES

    def look(
        self, tensor_name: str, tensor: Tensor, record: Record | None, micro_batch: int
    ) -> None:
        """Look at a tensor."""
        if tensor_name in CAUSES:
            self._made_of[tensor_name] = weakref.ref(tensor)
        elif tensor_name == "output":
            self._look(tensor_name, tensor, record, micro_batch, self._causes)
        else:
            self._look(tensor_name, tensor, record, micro_batch)

    def follow(self, output: Tensor, causes: Mapping[str, Tensor], micro_batch: int | None) -> None:
        """Look at what a layer gave, and later at its gradient; nothing else is done in it."""
        # The micro-batch is None where a checkpoint is computed again.
        if micro_batch is not None:
            self._look("output", output, None, micro_batch, lambda: _counts_of(causes))
        if output.requires_grad:
            hook: Callable[..., Any] = output.register_hook
            hook(partial(self._look_back, micro_batch or 0))

    def _look_back(self, micro_batch: int, gradient: Tensor) -> None:
        self._look("gradient", gradient, None, micro_batch)

    def _look(
        self,
        tensor_name: str,
        tensor: Tensor,
        record: Record | None,
        micro_batch: int,
        causes: Callable[[], dict[str, Counts]] | None = None,
    ) -> None:
        if not tensor.is_floating_point() or tensor.is_meta:
            return
        try:
            if record is None:
                if not tensor.is_cpu:
                    place = Place.now(self.name, tensor_name, micro_batch)
                    self._elsewhere.add(place, tensor.detach())
                    return
                record = collect(tensor, zeros=False)
            if record is not None:
                MARKS.seen(self.name, tensor_name, record, micro_batch, causes)
        except Exception as error:  # noqa: BLE001 - a watch must not end the training
            self._failed(self.name, tensor_name, error)

    def _causes(self) -> dict[str, Counts]:
        made_of = {name: reference() for name, reference in self._made_of.items()}
        return _counts_of({name: one for name, one in made_of.items() if one is not None})


def _counts_of(tensors: Mapping[str, Tensor]) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    for name, tensor in tensors.items():
        seen = tensor.is_floating_point() and not tensor.is_meta
        record = collect(tensor, zeros=False) if seen else None
        if record is not None:
            found[name] = Counts.of(record)
    return found
