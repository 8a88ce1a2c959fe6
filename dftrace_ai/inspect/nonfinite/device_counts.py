"""NaN and infinities counted on other devices, and fetched without waiting for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dftrace_ai.inspect.nonfinite.marks import Counts, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["DeviceCounts"]

PENDING_MOST = 4096
"""After so many looks at tensors of another device their counts are fetched."""


class _Pending(NamedTuple):
    place: Place
    counts: Tensor


class DeviceCounts:
    """Counts of tensors on other devices, which are fetched without waiting for the device."""

    def __init__(self) -> None:
        self._waiting: list[_Pending] = []
        self._under_way: list[tuple[list[_Pending], Tensor, Any]] = []

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
        for one in self._waiting:
            by_device.setdefault(one.counts.device, []).append(one)
        self._waiting = []
        for found in by_device.values():
            there = torch.stack([one.counts for one in found])
            pinned = there.is_cuda
            here = torch.empty(there.shape, dtype=there.dtype, device="cpu", pin_memory=pinned)
            here.copy_(there, non_blocking=True)
            arrived = None
            if there.is_cuda:
                make: Callable[[], Any] = torch.cuda.Event
                arrived = make()
                arrived.record(torch.cuda.current_stream(there.device))
            self._under_way.append((found, here, arrived))

    def arrived(self, *, wait: bool = False) -> list[tuple[Place, Counts]]:
        """Return the counts that have come, in the order in which they were counted."""
        told: list[tuple[Place, Counts]] = []
        while self._under_way:
            found, here, event = self._under_way[0]
            if event is not None and wait:
                event.synchronize()
            if event is not None and not event.query():
                break
            self._under_way.pop(0)
            told += [
                (one.place, Counts(*row)) for one, row in zip(found, here.tolist(), strict=True)
            ]
        return told
