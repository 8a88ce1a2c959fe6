"""Tensors as stretches of memory that the native kernels can read."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["in_memory_order", "is_plain_cpu", "local_part", "threads_for"]

SHARED_ELEMENTS = 256 * 1024
"""Smaller tensors are not worth waking a thread for; the native module has the same bound."""

_PLAIN_CLASSES = frozenset({Tensor, torch.nn.Parameter})


def is_plain_cpu(tensor: Tensor) -> bool:
    """Return whether a tensor's elements lie where `data_ptr` says, as they are."""
    return (
        tensor.is_cpu
        and type(tensor) in _PLAIN_CLASSES
        and tensor.layout is torch.strided
        and not may_be_negated(tensor)
    )


def may_be_negated(tensor: Tensor) -> bool:
    """Return whether the elements in memory may have the other sign.

    The imaginary part of a conjugate is such a tensor. Its elements lie apart, so that nothing
    need be asked of others: `is_neg` lets other threads run, which is slow, and which ends the
    process where a daemon thread does it while the interpreter ends.
    """
    lies_apart = tensor.numel() == 1 or not tensor.is_contiguous()
    return lies_apart and tensor.is_neg()


def local_part(tensor: Tensor) -> Tensor:
    """Return the elements that this process holds, as a plain tensor without gradient.

    Sharded tensors give their shard, sparse ones all their elements, zeros included.
    """
    to_local = getattr(tensor, "to_local", None)
    if to_local is not None:
        tensor = to_local()
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if type(tensor) not in _PLAIN_CLASSES:
        tensor = tensor.as_subclass(Tensor)
    return tensor.resolve_neg()


def in_memory_order(tensor: Tensor) -> Tensor:
    """Return the tensor itself where its elements fill a stretch of memory, else a copy that does.

    A transposed matrix, or channels that lie last, fill it in another order than their indices':
    that is all the same to whatever takes the elements one by one.
    """
    if tensor.is_contiguous() or _is_permuted(tensor):
        return tensor
    return tensor.contiguous()


def _is_permuted(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def threads_for(count: int, threads: int | None) -> int:
    """Return how many threads share so many elements."""
    if count < SHARED_ELEMENTS:
        return 1
    return torch.get_num_threads() if threads is None else threads
