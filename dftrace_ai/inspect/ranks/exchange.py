"""Numbers that travel between ranks: what `torch.distributed` is asked for, and by whom."""

from __future__ import annotations

import logging
import os
import sys
from array import array
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.numerics.record import FIELDS, record_of
from dftrace_ai.wording import described

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from dftrace_ai.inspect.numerics.record import Record

RECORD_BYTES = 8 * len(FIELDS)

_of_parent: Any = None
"""The process group that was up when this process was forked; it belongs to the parent."""


def _leave_group_to_parent() -> None:
    global _of_parent
    # Not imported here: a child is not the place for it.
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        _of_parent = dist.group.WORLD


os.register_at_fork(after_in_child=_leave_group_to_parent)


def distributed() -> Any:
    """Return `torch.distributed` where this process is in a process group, else None."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return None
    # The threads that serve a group are not in a child; a call in it would wait for ever.
    return None if _of_parent is not None and dist.group.WORLD is _of_parent else dist


def rank_of_process() -> int:
    """Return the global rank: of the process group, else what the launcher says, else 0."""
    from dftrace_ai.run.ranks import find_rank

    dist = distributed()
    return dist.get_rank() if dist else find_rank().rank or 0


def is_last_rank() -> bool:
    """Tell whether no process of the job has a higher rank."""
    dist = distributed()
    return dist is None or dist.get_rank() == dist.get_world_size() - 1


def _backends(group: Any) -> dict[str, str]:
    """By which backend a group exchanges what is on which type of device."""
    import torch.distributed as dist

    pairs = str(dist.get_backend_config(group)).lower().split(",")
    return {device: backend for device, _, backend in (pair.partition(":") for pair in pairs)}


def _device_of(group: Any, preferred: str = "cpu") -> Any:
    """A device on which a group can exchange numbers."""
    import torch

    backends = _backends(group)
    if preferred in backends:
        type_ = preferred
    else:
        type_ = "cpu" if "cpu" in backends else next(iter(backends))
    return torch.device(type_) if type_ == "cpu" else torch.device(type_, _current(type_))


def _current(type_: str) -> int:
    import torch

    return int(getattr(torch, type_).current_device())


def behind(group: Any) -> bool:
    """Tell whether devices of a group's members run behind their hosts: the same on all of them."""
    return not set(_backends(group).values()) <= {"gloo", "mpi"}


@cache
def _side_stream(device: Any) -> Any:
    import torch

    return getattr(torch, device.type).Stream(device)


class Sent:
    """A message to all members of a group, which all have to send one of the same size."""

    # Where the group exchanges what is on devices, as NCCL does, the host does not wait for it. A
    # group of None is all processes, here and below.

    def __init__(self, message: bytearray | array[float], group: Any) -> None:
        import torch
        import torch.distributed as dist

        device = _device_of(group)
        own = torch.frombuffer(message, dtype=torch.uint8)
        members, self._size = dist.get_world_size(group), own.numel()
        self._bytes = bytearray(members * self._size)
        self._found = torch.frombuffer(self._bytes, dtype=torch.uint8)
        self._event: Any = None
        if device.type == "cpu":
            dist.all_gather(self._by_member(self._found), own, group=group)
            return
        # On a stream of its own, since nothing that the model computes is waited for.
        side = _side_stream(device)
        with getattr(torch, device.type).stream(side):
            own = own.pin_memory().to(device, non_blocking=True)
            there = torch.empty(self._found.numel(), dtype=torch.uint8, device=device)
            dist.all_gather(self._by_member(there), own, group=group)
            self._pinned = torch.empty_like(self._found, pin_memory=True)
            self._pinned.copy_(there, non_blocking=True)
            self._event = side.record_event()

    def _by_member(self, everyone: Tensor) -> list[Tensor]:
        return list(everyone.view(-1, self._size).unbind())

    def received(self) -> list[memoryview]:
        """Return the message of each member, in the order of their ranks in the group."""
        if self._event is not None:
            self._event.synchronize()
            self._found.copy_(self._pinned)
            self._event = None
        view = memoryview(self._bytes)
        return [view[start : start + self._size] for start in range(0, len(view), self._size)]


def packed(rows: Sequence[Record]) -> array[float]:
    """Return records as a message."""
    return array("d", chain.from_iterable(rows))


def unpacked(part: memoryview) -> list[Record]:
    """Return the records of a message."""
    if not part:
        return []
    numbers = iter(part.cast("d").tolist())
    return list(map(record_of, zip(*[numbers] * len(FIELDS), strict=True)))


def gathered(rows: Sequence[Record], group: Any) -> list[list[Record]]:
    """Exchange records; every member of the group must call this with as many."""
    # They are in the order of the members' ranks in the group.
    return [unpacked(part) for part in Sent(packed(rows), group).received()]


def gathered_rows(row: Tensor, group: Any) -> Tensor:
    """Exchange a record that is on a device; every member of the group must call this."""
    # Where the group exchanges what is on that device, as NCCL does, the host does not wait. The
    # rows, of 17 fp64 numbers, are on the same device, in the order of their ranks in the group.
    import torch
    import torch.distributed as dist

    device = _device_of(group, row.device.type)
    own = row.clone() if row.device.type == device.type else row.to(device)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, own, group=group)
    return torch.stack(everyone).to(row.device)


class Groups:
    """The groups of ranks of a session, until an exchange fails."""

    # After a failure the members may disagree on which exchange is the next: those of the group
    # come to an end, and each rank logs what it has itself.

    def __init__(self, tell: Callable[[str, int], None]) -> None:
        self._tell = tell
        # The groups themselves are kept, so that none is taken for another one of the same id.
        self._lost: dict[int, Any] = {}

    def usable(self, group: Any) -> bool:
        """Tell whether this rank exchanges records with a group; None is all processes."""
        dist = distributed()
        if dist is None:
            return False
        group = dist.group.WORLD if group is None else group
        if id(group) in self._lost:
            return False
        try:
            if dist.get_rank(group) >= 0:
                return True
        except Exception as error:  # noqa: BLE001 - a group that is gone must not end the training
            self.lost(group, error)
            return False
        self._lose(group, "This rank is no member of the reduction group; it", logging.WARNING)
        return False

    def lost(self, group: Any, error: Exception) -> None:
        """Take in that an exchange has failed."""
        dist = distributed()
        group = dist.group.WORLD if group is None and dist is not None else group
        why = f"An exchange of records with other ranks failed, {described(error)}. This rank"
        self._lose(group, why, logging.ERROR)

    def _lose(self, group: Any, why: str, level: int) -> None:
        self._lost[id(group)] = group
        self._tell(f"{why} logs its own statistics alone from now on.", level)
