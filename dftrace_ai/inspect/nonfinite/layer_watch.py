"""The watch over one layer: its output and its gradient, and what they were made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dftrace_ai.inspect.nonfinite.marks import MARKS, Counts, Place
from dftrace_ai.inspect.numerics.collect import collect

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from dftrace_ai.inspect.numerics.record import Record

__all__ = ["CAUSES", "DeviceCounts", "LayerWatch"]

WATCHED = ("output", "gradient")
CAUSES = ("activation", "weight")

PENDING_MOST = 4096
"""After so many looks at tensors of another device their counts are fetched."""


class LayerWatch:
    """The watch over one layer."""

    def __init__(
        self, name: str, elsewhere: DeviceCounts, failed: Callable[[str, str, Exception], None]
    ) -> None:
        self.name = name
        self._elsewhere = elsewhere
        self._failed = failed

    def wants(self, tensor_name: str) -> bool:
        """Tell whether a tensor is looked at."""
        return tensor_name in WATCHED or tensor_name in CAUSES

    def look(
        self,
        tensor_name: str,
        tensor: Tensor,
        record: Record | None,
        micro_batch: int,
        made_of: Mapping[str, weakref.ref[Tensor]],
    ) -> None:
        """Look at what comes out of a layer, or its gradient."""
        if not _has_floats(tensor):
            return
        try:
            if record is None:
                if not tensor.is_cpu:
                    place = Place.now(self.name, tensor_name, micro_batch)
                    self._elsewhere.add(place, tensor.detach())
                    return
                record = collect(tensor, zeros=False)
            if record is not None:
                causes = (lambda: _counts_of(made_of)) if tensor_name == "output" else None
                MARKS.seen(self.name, tensor_name, record, micro_batch, causes)
        except Exception as error:  # noqa: BLE001 - a watch must not end the training
            self._failed(self.name, tensor_name, error)


def _has_floats(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not tensor.is_meta


def _counts_of(made_of: Mapping[str, weakref.ref[Tensor]]) -> dict[str, Counts]:
    """Count what an output is made of, as far as it is still there."""
    found: dict[str, Counts] = {}
    for name, reference in made_of.items():
        tensor = reference()
        seen = tensor is not None and _has_floats(tensor)
        record = collect(tensor, zeros=False) if tensor is not None and seen else None
        if record is not None:
            found[name] = Counts.of(record)
    return found


class _Pending(NamedTuple):
    place: Place
    counts: Tensor


class _Fetched(NamedTuple):
    pending: list[_Pending]
    counts: Tensor  # on the host, a row for each
    arrived: Any  # an event of CUDA's; None where they are there already


class DeviceCounts:
    """Counts of tensors on other devices, which are fetched without waiting for the device."""

    def __init__(self) -> None:
        self._waiting: list[_Pending] = []
        self._under_way: list[_Fetched] = []

    def add(self, place: Place, tensor: Tensor) -> None:
        """Have a tensor counted on its device."""
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        nan = tensor.isnan().sum()
        bad = tensor.numel() - tensor.isfinite().sum()
        total = torch.full_like(nan, tensor.numel())
        self._waiting.append(_Pending(place, torch.stack((nan, bad - nan, total))))
        if len(self._waiting) >= PENDING_MOST:
            self.fetch()

    def fetch(self) -> None:
        """Begin to fetch what was counted."""
        by_device: dict[torch.device, list[_Pending]] = {}
        for pending in self._waiting:
            by_device.setdefault(pending.counts.device, []).append(pending)
        self._waiting = []
        for counted in by_device.values():
            there = torch.stack([pending.counts for pending in counted])
            on_cuda = there.is_cuda
            here = torch.empty(there.shape, dtype=there.dtype, device="cpu", pin_memory=on_cuda)
            here.copy_(there, non_blocking=True)
            arrived: Any = None
            if on_cuda:
                make: Callable[[], Any] = torch.cuda.Event
                arrived = make()
                arrived.record(torch.cuda.current_stream(there.device))
            self._under_way.append(_Fetched(counted, here, arrived))

    def arrived(self, *, wait: bool = False) -> list[tuple[Place, Counts]]:
        """Return the counts that have come, in the order in which they were counted."""
        told: list[tuple[Place, Counts]] = []
        while self._under_way:
            pending, counts, event = self._under_way[0]
            if event is not None and wait:
                event.synchronize()
            if event is not None and not event.query():
                break
            self._under_way.pop(0)
            rows = zip(pending, counts.tolist(), strict=True)
            told += [(counted.place, Counts(*row)) for counted, row in rows]
        return told
