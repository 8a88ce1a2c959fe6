"""The operations below all interfaces of torch.distributed: what each is, and what tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["NAMES", "Operation", "first_tensor", "operations"]

NAMES: Final = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "broadcast_": "bcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier_": "barrier",
    "send": "send",
    "recv_": "receive",
    "recv_any_source_": "receive",
}
"""Names of spans, as the vocabulary has them, by name of the operation."""

_PEERS: Final = {"send": "dst", "recv_": "src"}


class Operation(NamedTuple):
    """One of them, in the version of torch that is here.

    Attributes:
        op: its name.
        name: that of its spans.
        overload: what is called.
        group_at: position of the process group among its arguments.
        tensors_at: of what is given to others and got from them.
        sized: that tells how much goes from rank to rank; a barrier's tensor names its device.
        root_at: of the rank that alone gives or gets; None where there is none.
        peer_at: of the rank at the other end of a message; None where there is none.
        tag_at: of a message's tag; None where it is no message.
        work_at: of what the caller may wait for, among its results; None where it waits itself.
        alone: that is its only result.
    """

    op: str
    name: str
    overload: Any
    group_at: int
    tensors_at: tuple[int, ...]
    sized: bool
    root_at: int | None
    peer_at: int | None
    tag_at: int | None
    work_at: int | None
    alone: bool

    @property
    def is_message(self) -> bool:
        """Whether it goes from one rank to another."""
        return self.tag_at is not None


def operations() -> Iterator[Operation]:
    """Yield those that this version of torch has, and that say which group they are of."""
    import torch

    present = set(torch._C._dispatch_get_all_op_names())
    for op, name in NAMES.items():
        if f"c10d::{op}" not in present:
            continue
        overload = getattr(torch.ops.c10d, op).default
        schema = overload._schema
        at = {argument.name: position for position, argument in enumerate(schema.arguments)}
        if "process_group" not in at:
            continue
        results = [str(result.type) for result in schema.returns]
        works = [position for position, kind in enumerate(results) if kind.endswith("c10d.Work")]
        tensors = (
            position
            for position, argument in enumerate(schema.arguments)
            if "Tensor" in str(argument.type) and argument.name != "sparse_indices"
        )
        yield Operation(
            op=op,
            name=name,
            overload=overload,
            group_at=at["process_group"],
            tensors_at=tuple(tensors),
            sized=name != "barrier",
            root_at=at.get("root_rank"),
            peer_at=at.get(_PEERS.get(op, "")),
            tag_at=at.get("tag"),
            work_at=works[0] if works else None,
            alone=len(results) == 1,
        )


def first_tensor(given: Sequence[Any]) -> Any:
    """Return the first tensor in lists of any depth; None where there is none."""
    for one in given:
        found = first_tensor(one) if isinstance(one, (list, tuple)) else one
        if found is not None:
            return found
    return None
