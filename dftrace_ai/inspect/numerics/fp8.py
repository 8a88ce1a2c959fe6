"""8-bit floating-point formats: scales, what they lose, and tensors as they come back from them."""

from __future__ import annotations

import math
from ctypes import c_float
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, overload

import torch
from torch import Tensor

import dftrace_ai._native as _native
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError
from dftrace_ai.inspect.numerics import blocks, plain
from dftrace_ai.inspect.numerics.formats import FP32_MAX, SMALLEST_SCALE
from dftrace_ai.inspect.numerics.memory import (
    ELEMENTS,
    address_of,
    in_memory_order,
    is_plain_cpu,
    local_part,
    threads_for,
)
from dftrace_ai.inspect.numerics.record import record_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.inspect.numerics.blocks import Blocks
    from dftrace_ai.inspect.numerics.formats import Format
    from dftrace_ai.inspect.numerics.record import Record


def scale_of(amax: float, format: Format, margin: int = 0, previous: float = 1.0) -> float:
    """Return what elements are multiplied by before the cast, an fp32 number."""
    # It is fmax / amax / 2**margin, each step rounded to fp32, at most the largest fp32 number; the
    # previous one where amax is 0, infinite or NaN.
    if not 0 < amax < math.inf:
        return previous
    scale = c_float(format.fmax / amax).value
    # More than this power brings any number to a bound.
    power = max(-1000, min(1000, margin))
    scale = c_float(min(scale, FP32_MAX * 2) * 2.0**-power).value if scale < math.inf else scale
    return max(SMALLEST_SCALE, min(scale, FP32_MAX))


def thresholds(scale: float, format: Format) -> tuple[float, float]:
    """Return the magnitude up to which elements become zero, and above which they are clipped."""
    # The second leaves a rounding's room: under a scale made of amax, amax itself is not clipped.
    return _native.fp8_thresholds(scale, format.code)


_quantise = cast("Callable[..., Record]", _native.fake_quantise)
_ELEMENTS = {dtype: number for dtype, number in ELEMENTS.items() if dtype is not torch.float64}


@overload
def fake_quantise(
    tensor: Tensor,
    format: Format,
    scale: float | Tensor,
    *,
    with_counts: Literal[False] = ...,
    threads: int | None = ...,
) -> Tensor: ...
@overload
def fake_quantise(
    tensor: Tensor,
    format: Format,
    scale: float | Tensor,
    *,
    with_counts: Literal[True],
    threads: int | None = ...,
) -> tuple[Tensor, Record]: ...
def fake_quantise(
    tensor: Tensor,
    format: Format,
    scale: float | Tensor,
    *,
    with_counts: bool = False,
    threads: int | None = None,
) -> Tensor | tuple[Tensor, Record]:
    """Return a tensor as it comes back from an 8-bit format."""
    # Each element is multiplied by the scale in fp32, clipped to the format's largest number,
    # rounded to nearest even (subnormals kept), multiplied by the reciprocal of the scale, and
    # rounded to the tensor's own format. NaN stays NaN; infinities are clipped. No gradient flows
    # through it. A scale is positive and finite; in a tensor with one element it stays on its
    # device. Returned with counts is also a record, neutral but for n_over, n_under, n_total,
    # square_error and the scales; on a device other than the CPU that waits for it.
    element = _ELEMENTS.get(tensor.dtype)
    if element is None or not is_plain_cpu(tensor):
        return _fake_quantise_elsewhere(tensor, format, scale, with_counts)
    source = in_memory_order(tensor)
    output = torch.empty_like(source, requires_grad=False)
    count = source.numel()
    record = _quantise(
        address_of(source),
        output.data_ptr(),
        count,
        element,
        format.code,
        _checked(float(scale)),
        threads_for(count, threads),
        with_counts,
    )
    return (output, record) if with_counts else output


def _checked(scale: float) -> float:
    if not 0 < c_float(scale).value <= FP32_MAX:
        raise InspectValueError(f"a scale must be above zero and finite in fp32, not {scale}")
    return scale


def _fake_quantise_elsewhere(
    tensor: Tensor,
    format: Format,
    scale: float | Tensor,
    with_counts: bool,
) -> Tensor | tuple[Tensor, Record]:
    _check_numbers(tensor)
    if not isinstance(scale, Tensor):
        _checked(scale)
    output, row = plain.fake_quantise(tensor.detach(), format, scale, with_counts=with_counts)
    return output if row is None else (output, record_of(row.tolist()))


def fake_quantise_in_blocks(tensor: Tensor, format: Format, margin: int = 0) -> Tensor:
    """Return a tensor as it comes back from MXFP8: blocks of 32 in a row share a power of two."""
    # As `fake_quantise` otherwise; blocks are those of the last dimension, and an infinity stays.
    _check_numbers(tensor)
    return blocks.fake_quantise_in_blocks(tensor.detach(), blocks.mxfp8(format, margin))


class Quantised(NamedTuple):
    """A tensor in an 8-bit format."""

    numbers: Tensor  # of one of torch's types
    scale_inv: Tensor  # what they are multiplied by: one number, or one for each block of a row


def quantised(
    tensor: Tensor, format: Format, scale: float | Tensor | None, margin: int = 0
) -> Quantised:
    """Return a tensor in an 8-bit format; without a scale in blocks of MXFP8."""
    _check_numbers(tensor)
    local = local_part(tensor).detach()
    return Quantised(*blocks.quantised(local, format, scale, margin))


def _check_numbers(tensor: Tensor) -> None:
    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        raise InspectTypeError(f"{tensor.dtype} is not quantised; fp64, fp32, bf16 and fp16 are")


def _as_numbers(tensor: Tensor) -> Tensor:
    """Return what is counted: integers, bools and numbers of 8 bits as fp32, as `collect` does."""
    if tensor.is_complex():
        raise InspectTypeError(f"{tensor.dtype} is not quantised; take the parts of its numbers")
    if not is_plain_cpu(tensor):
        tensor = local_part(tensor)
    if tensor.is_floating_point() and tensor.dtype.itemsize > 1:
        return tensor
    return tensor.detach().to(torch.float32)


def quantisation_row(tensor: Tensor, format: Format, scale: float | Tensor) -> Tensor:
    """Return `quantisation_record` as 17 numbers on the device of the tensor; nothing waits for it.

    The scale is positive and finite; a tensor with one element stays on its device.
    """
    numbers = _as_numbers(tensor).detach()
    output, _ = plain.fake_quantise(numbers, format, scale)
    return plain.lost_row(numbers, output, format, scale)


def row_in_blocks(tensor: Tensor, cut: Blocks) -> Tensor:
    """Return what a format in blocks loses of a tensor, as `quantisation_row` does."""
    return blocks.row_of_blocks(_as_numbers(tensor), cut)


def quantisation_record(
    tensor: Tensor,
    format: Format,
    scale: float,
    *,
    threads: int | None = None,
) -> Record:
    """Return what quantising a tensor would lose, without making the quantised tensor."""
    # It is the record that `fake_quantise(..., with_counts=True)` gives.
    tensor = _as_numbers(tensor)
    element = _ELEMENTS.get(tensor.dtype)
    if element is None or not is_plain_cpu(tensor):
        return fake_quantise(tensor, format, scale, with_counts=True)[1]
    source = in_memory_order(tensor)
    count = source.numel()
    shared = threads_for(count, threads)
    return _quantise(
        address_of(source), 0, count, element, format.code, _checked(scale), shared, True
    )
