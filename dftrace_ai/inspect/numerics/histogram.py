"""How the elements of a tensor are distributed, beside its record, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

import dftrace_ai._native as _native
from dftrace_ai.inspect.errors import InspectTypeError
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.memory import address_of, in_memory_order, local_part, threads_for
from dftrace_ai.inspect.numerics.record import Record, record_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BINS", "SHIFT", "histogram"]

SHIFT = 20
"""The bits of an fp32 number that do not say in which bin it lies."""
BINS = 1 << (32 - SHIFT)

_ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}

_histogram = cast("Callable[..., tuple[Record, bytes]]", _native.tensor_histogram)


def histogram(tensor: Tensor, threads: int | None = None) -> tuple[Record, bytes] | None:
    """Return the record of a tensor, and how many of its elements lie in each bin; None for none.

    A bin holds the numbers of fp32 that have sign, exponent and the first three bits of the
    mantissa in common. Elements of other formats are taken as the nearest of fp32. Of a sharded
    tensor the shard is taken. On a device other than the CPU this waits for the device. The record
    is without what an 8-bit format would lose; beside it are 4,096 whole numbers of 64 bits in the
    machine's order: of the bin whose numbers have these uppermost bits.
    """
    if tensor.is_complex():
        raise InspectTypeError("a complex tensor has no histogram; take those of its parts")
    local = local_part(tensor.detach())
    if not local.numel():
        return None
    if local.is_meta:
        raise InspectTypeError("a meta tensor has no elements")
    if not local.is_cpu:
        return _on_device(local)
    if local.layout is not torch.strided:
        local = local.to_dense()
    local = in_memory_order(local if local.dtype in _ELEMENTS else local.to(torch.float32))
    count = local.numel()
    return _histogram(address_of(local), count, _ELEMENTS[local.dtype], threads_for(count, threads))


def _on_device(tensor: Tensor) -> tuple[Record, bytes]:
    codes = tensor.reshape(-1).to(torch.float32).view(torch.int32) >> SHIFT
    counts = torch.bincount(codes & (BINS - 1), minlength=BINS).cpu()
    return record_of(plain.row_of(tensor).tolist()), counts.numpy().tobytes()
