"""The record of a tensor, and how its elements are distributed: one pass over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

import dftrace_ai._native as _native
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.formats import FP32_MAX, Format
from dftrace_ai.inspect.numerics.memory import (
    ELEMENTS,
    SHARED_ELEMENTS,
    address_of,
    in_memory_order,
    local_part,
    threads_for,
)
from dftrace_ai.inspect.numerics.record import Record, merge_all, record_of

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN_CLASSES = (Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
CAST_ELEMENTS = 1 << 20
"""Formats that no kernel reads are cast in parts of so many elements."""

SHIFT = 20
"""The bits of an fp32 number that do not say in which bin it lies."""
BINS = 1 << (32 - SHIFT)

_record = cast("Callable[..., Record]", _native.tensor_record)
_histogram = cast("Callable[..., tuple[Record, bytes]]", _native.tensor_histogram)
_plain_record = cast("Callable[[Tensor, bool], Record | None]", _native.plain_tensor_record)
# Older versions of torch have no table of functions that tells what a tensor is: nothing is plain.
_native.plain_tensors_are(*_PLAIN_CLASSES)


def collect(
    tensor: Tensor,
    *,
    scale: float | None = None,
    format: Format | None = None,
    threads: int | None = None,
    zeros: bool = True,
) -> Record | None:
    """Return the record of a tensor's elements, or None where it has none."""
    # The tensor may require a gradient and have any layout. Integers and bools are taken as fp32,
    # elements of 8-bit formats as the numbers they are. Of a sharded tensor the shard is taken. On
    # a device other than the CPU this waits for the device. Elements that `format` would clip or
    # turn to zero under a scale are counted where one is given. The result has the same bits
    # whatever number of threads shares it; None is torch's. Without zeros, n_zero and amin_nonzero
    # are NaN, which saves up to a third of the time.
    if scale is None:
        # The way of nearly all small tensors, at half of the cost.
        record = _plain_record(tensor, zeros)
        if record is not None:
            return record
    element = ELEMENTS.get(tensor.dtype)
    if (
        element is None
        or not tensor.is_cpu
        or type(tensor) not in _PLAIN_CLASSES
        or tensor.layout is not _STRIDED
        or not tensor.is_contiguous()
    ):
        return _collect_other(tensor, scale, format, threads, zeros)
    count = tensor.numel()
    if count < 2:
        if not count:
            return None
        tensor = tensor.resolve_neg()
    shared = 1 if count < SHARED_ELEMENTS else threads_for(count, threads)
    address = address_of(tensor)
    if scale is None:
        return _record(address, count, element, 1 if zeros else 0, shared, 1.0, 0)
    code = _checked(scale, format).code
    return _record(address, count, element, 2, shared, scale, code)


def _checked(scale: float, format: Format | None) -> Format:
    if format is None:
        raise InspectValueError("a scale needs a format: give format=Format.E4M3 or Format.E5M2")
    if not 2.0**-149 <= scale <= FP32_MAX:
        raise InspectValueError(f"a scale must be above zero and finite in fp32, not {scale}")
    return format


def _elements_here(tensor: Tensor, what: str) -> Tensor | None:
    """Return the elements that this process holds, None for none."""
    if tensor.is_complex():
        raise InspectTypeError(f"a complex tensor has no {what}; take those of its parts")
    local = local_part(tensor)
    if not local.numel():
        return None
    if local.is_meta:
        raise InspectTypeError("a meta tensor has no elements")
    return local


def _collect_other(
    tensor: Tensor,
    scale: float | None,
    format: Format | None,
    threads: int | None,
    zeros: bool,
) -> Record | None:
    local = _elements_here(tensor, "statistics")
    if local is None:
        return None
    if scale is not None:
        _checked(scale, format)
    if not local.is_cpu:
        return record_of(plain.row_of(local, scale=scale, format=format).tolist())
    local = in_memory_order(local)
    flat = local.as_strided((local.numel(),), (1,))
    if local.dtype in ELEMENTS:
        return collect(flat, scale=scale, format=format, threads=threads, zeros=zeros)
    return merge_all(_cast_records(flat, scale, format, zeros))


def _cast_records(
    flat: Tensor,
    scale: float | None,
    format: Format | None,
    zeros: bool,
) -> list[Record]:
    records: list[Record] = []
    for part in torch.split(flat, CAST_ELEMENTS):
        try:
            numbers = part.to(torch.float32)
        except RuntimeError as error:
            raise InspectTypeError(f"{flat.dtype} is not cast to fp32: {error}") from error
        record = collect(numbers, scale=scale, format=format, threads=1, zeros=zeros)
        if record is not None:
            records.append(record)
    return records


def histogram(tensor: Tensor, threads: int | None = None) -> tuple[Record, bytes] | None:
    """Return the record of a tensor, and how many of its elements lie in each bin; None for none.

    A bin holds the numbers of fp32 that have sign, exponent and the first three bits of the
    mantissa in common. Elements of other formats are taken as the nearest of fp32. Of a sharded
    tensor the shard is taken. On a device other than the CPU this waits for the device. The record
    is without what an 8-bit format would lose; beside it are 4,096 whole numbers of 64 bits in the
    machine's order: of the bin whose numbers have these uppermost bits.
    """
    local = _elements_here(tensor, "histogram")
    if local is None:
        return None
    if not local.is_cpu:
        codes = local.reshape(-1).to(torch.float32).view(torch.int32) >> SHIFT
        counts = torch.bincount(codes & (BINS - 1), minlength=BINS).cpu()
        return record_of(plain.row_of(local).tolist()), counts.numpy().tobytes()
    local = in_memory_order(local if local.dtype in ELEMENTS else local.to(torch.float32))
    count = local.numel()
    return _histogram(address_of(local), count, ELEMENTS[local.dtype], threads_for(count, threads))
