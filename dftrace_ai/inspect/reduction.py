"""Records of many ranks become one: only records travel, never tensors."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect.numerics.record import FIELDS, NEUTRAL, Record, merge_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from dftrace_ai.inspect.config import Schedule

__all__ = [
    "GroupMerger",
    "Slot",
    "distributed",
    "gathered",
    "gathered_rows",
    "is_last_rank",
    "rank_of_process",
]


class Slot(NamedTuple):
    """What has a record of its own in a step.

    Attributes:
        layer: name of the layer.
        tensor: name of the tensor.
        source: by which scale its 8-bit losses are counted: ``plain`` (not at all), ``used``,
            ``current`` or ``delayed``.
    """

    layer: str
    tensor: str
    source: str = "plain"


def distributed() -> Any:
    """Return `torch.distributed` where a process group is up, else None."""
    import torch.distributed as dist

    return dist if dist.is_available() and dist.is_initialized() else None


def rank_of_process() -> int:
    """Return the global rank: of the process group, else what the launcher says, else 0."""
    from dftrace_ai.ranks import find_rank

    dist = distributed()
    return dist.get_rank() if dist else find_rank().rank or 0


def is_last_rank() -> bool:
    """Tell whether no process of the job has a higher rank."""
    dist = distributed()
    return dist is None or dist.get_rank() == dist.get_world_size() - 1


def _device_of(group: Any) -> Any:
    """The device on which a group can exchange numbers."""
    import torch
    import torch.distributed as dist

    backend = str(dist.get_backend(group)).lower()
    on_cpu = "gloo" in backend or "mpi" in backend or "cpu" in backend
    return torch.device("cpu") if on_cpu else torch.device("cuda", torch.cuda.current_device())


def gathered(rows: Sequence[Record], group: Any) -> list[list[Record]]:
    """Exchange records; every member of the group must call this with as many.

    Args:
        rows: the records of this rank.
        group: a process group, or None for all processes.

    Returns:
        The records of each member, in the order of their ranks in the group.

    Example::

        by_rank = gathered([record], group=None)
    """
    import torch
    import torch.distributed as dist

    device = _device_of(group)
    own = torch.tensor(rows, dtype=torch.float64, device=device).reshape(len(rows), len(FIELDS))
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, own, group=group)
    return [[tuple(row) for row in matrix.tolist()] for matrix in everyone]


def gathered_rows(row: Tensor, group: Any) -> Tensor:
    """Exchange a record that is on a device; every member of the group must call this.

    Where the group exchanges what is on that device, as NCCL does, the host does not wait.

    Args:
        row: the record of this rank, 17 fp64 numbers.
        group: a process group, or None for all processes.

    Returns:
        On the same device, the row of each member, in the order of their ranks in the group.

    Example::

        whole = merged_rows(gathered_rows(row, group=None))
    """
    import torch
    import torch.distributed as dist

    device = _device_of(group)
    own = row.clone() if row.device.type == device.type else row.to(device)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, own, group=group)
    return torch.stack(everyone).to(row.device)


class GroupMerger:
    """Merges the records of a group of ranks step by step.

    Each step first compares what the members have to tell: where that is the same, the
    records go in one matrix. Where members have other layers, as the stages of a pipeline do,
    they exchange once what each has, and from then on fill a matrix of everything.

    Args:
        group: a process group, or None for all processes.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._unions: dict[tuple[int, ...], dict[Slot, tuple[Schedule, ...]]] = {}

    def merge(
        self,
        table: Mapping[Slot, tuple[Schedule, ...]],
        records: Mapping[Slot, Record],
        iteration: int,
    ) -> dict[Slot, Record]:
        """Merge what the members saw in an iteration; every member must call this.

        Args:
            table: all slots of this rank, due or not, with what makes them due.
            records: what was seen; a slot without a record counts as one without elements.
            iteration: the step.

        Returns:
            The merged record of each slot that is due anywhere. All members get the same bits.
        """
        slots = self._due(table, iteration)
        if not slots:
            return {}
        rows = [records.get(slot, NEUTRAL) for slot in slots]
        by_rank = gathered(rows, self._group)
        return {
            slot: merge_all(rows_of_rank[index] for rows_of_rank in by_rank)
            for index, slot in enumerate(slots)
        }

    def _due(self, table: Mapping[Slot, tuple[Schedule, ...]], iteration: int) -> list[Slot]:
        hashes = self._hashes(table)
        if len(set(hashes)) > 1:
            table = self._unions.get(hashes) or self._exchange(hashes, table)
        return [
            slot for slot, schedules in table.items() if any(s.due(iteration) for s in schedules)
        ]

    def _hashes(self, table: Mapping[Slot, tuple[Schedule, ...]]) -> tuple[int, ...]:
        import torch
        import torch.distributed as dist

        text = repr(list(table.items())).encode("utf-8", "backslashreplace")
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)
        own = torch.tensor([digest], dtype=torch.int64, device=_device_of(self._group))
        everyone = [torch.empty_like(own) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(everyone, own, group=self._group)
        return tuple(int(one.item()) for one in everyone)

    def _exchange(
        self, hashes: tuple[int, ...], table: Mapping[Slot, tuple[Schedule, ...]]
    ) -> dict[Slot, tuple[Schedule, ...]]:
        import torch.distributed as dist

        tables: list[Any] = [None] * len(hashes)
        dist.all_gather_object(tables, dict(table), group=self._group)
        union: dict[Slot, tuple[Schedule, ...]] = {}
        for one in tables:
            for slot, schedules in one.items():
                union[slot] = tuple(dict.fromkeys((*union.get(slot, ()), *schedules)))
        self._unions[hashes] = union
        return union
