"""Formats in which each block of a tensor has a scale of its own, in torch's operations.

MXFP8 (OCP Microscaling Formats 1.0), FP8 block scaling (DeepSeek-V3 Technical Report, 2024, section
3.3.2) and NVFP4 (Pretraining Large Language Models with NVFP4, 2025, appendix B), with the rules of
Transformer Engine's recipes. Rows are all dimensions but the last, taken together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics.formats import FP32_MAX, SMALLEST_SCALE, Format, Grid
from dftrace_ai.inspect.numerics.plain import (
    PART_ELEMENTS,
    factor_of,
    merged_rows,
    neutral_row,
    on_its_shard,
    row_with,
    there_and_back,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.inspect.numerics.statistics import BlockRange

E2M1 = Grid(fmax=6.0, mantissa_bits=1, smallest_exponent=0)
"""The numbers of FP4: 0, 0.5, 1, 1.5, 2, 3, 4 and 6."""


class Blocks(NamedTuple):
    """A format in blocks; the last ones of a row or column may be shorter."""

    format: Format | Grid
    height: int  # rows
    width: int  # neighbours in a row
    margin: int = 0  # is added to the power of two of each scale

    def scales(self, cut: Tensor, whole: Tensor) -> Tensor:
        """Return what the numbers of each block, as `_cut` gives them, are multiplied by."""
        # It is fp32. The whole is the largest magnitude of the tensor, without dimensions.
        amax = _finite_amax(cut, (1, 3))
        if self.format is E2M1:
            return _two_levels(amax, whole)
        # The power is rounded up, so that no number is clipped.
        fraction, power = torch.frexp(amax / self.format.fmax)
        power = (power - (fraction == 0.5).to(power.dtype) + self.margin).clamp(-127, 120)
        return ((127 - power) << 23).view(torch.float32)


def mxfp8(
    format: Format,
    margin: int = 0,
    *,
    columnwise: bool = False,
) -> Blocks:
    """Return the blocks of MXFP8, which are parts of rows."""
    height, width = (32, 1) if columnwise else (1, 32)
    return Blocks(format, height, width, margin)


RECIPES = {"mxfp8": 32, "fp8_block_scaling": 128, "nvfp4": 16}
"""The recipes that cut tensors into blocks, and how long a block is."""


def blocks_of(recipe: str, tensor: str, *, columnwise: bool = False) -> Blocks:
    """Return how a recipe cuts a tensor of a layer."""
    # As Transformer Engine has them: all is E4M3, or FP4; a weight has squares but in MXFP8.
    length = RECIPES[recipe]
    numbers = E2M1 if recipe == "nvfp4" else Format.E4M3
    if tensor == "weight" and recipe != "mxfp8":
        return Blocks(numbers, length, length)
    return Blocks(numbers, length, 1) if columnwise else Blocks(numbers, 1, length)


def _two_levels(amax: Tensor, whole: Tensor) -> Tensor:
    """Return the scales of NVFP4: one in E4M3 for each block, beside one for the tensor in fp32."""
    eights = Format.E4M3
    outer = (eights.fmax * E2M1.fmax / whole).clamp(max=FP32_MAX)
    outer = torch.where(whole > 0, outer, 1.0)
    inner = there_and_back(amax / E2M1.fmax * outer, eights, torch.ones_like(outer))
    # A block that is too small for E4M3 becomes zero.
    return torch.where(inner > 0, (outer / inner).clamp(max=FP32_MAX), SMALLEST_SCALE)


def _finite_amax(numbers: Tensor, dimensions: tuple[int, ...]) -> Tensor:
    finite = numbers.abs().to(torch.float32).nan_to_num(0.0, FP32_MAX)
    return finite.amax(dimensions, keepdim=True)


def _cut(rows: Tensor, height: int, width: int) -> Tensor:
    """Return rows as (blocks down, height, blocks across, width), with zeros behind the last."""
    lacking = (0, -rows.shape[1] % width, 0, -rows.shape[0] % height)
    padded = torch.nn.functional.pad(rows, lacking) if any(lacking) else rows
    return padded.reshape(padded.shape[0] // height, height, padded.shape[1] // width, width)


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)


def _put_together(cut: Tensor, tensor: Tensor) -> Tensor:
    """Return the numbers of blocks in the shape of the tensor that they were cut out of."""
    rows = _rows(tensor)
    return cut.flatten(2, 3).flatten(0, 1)[: rows.shape[0], : rows.shape[1]].reshape(tensor.shape)


def fake_quantise_in_blocks(tensor: Tensor, blocks: Blocks) -> Tensor:
    """Return a tensor as it comes back from a format in blocks."""
    return on_its_shard(tensor, lambda shard: _in_blocks(shard, blocks))


def _in_blocks(tensor: Tensor, blocks: Blocks) -> Tensor:
    if not tensor.numel():
        return tensor.clone()
    cut = _cut(_rows(tensor), blocks.height, blocks.width)
    scales = blocks.scales(cut, _finite_amax(tensor, ()))
    return _put_together(there_and_back(cut, blocks.format, scales), tensor)


def quantised(
    tensor: Tensor,
    format: Format,
    scale: float | Tensor | None,
    margin: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return a tensor in one of torch's 8-bit types, and what its numbers are multiplied by."""
    # Without a scale those are of MXFP8, one for each block of a row.
    kind = torch.float8_e4m3fn if format.mantissa_bits == 3 else torch.float8_e5m2
    if scale is not None:
        numbers, factor = tensor, factor_of(scale, tensor.device)
    else:
        blocks = mxfp8(format, margin)
        numbers = _cut(_rows(tensor), blocks.height, blocks.width)
        factor = blocks.scales(numbers, _finite_amax(tensor, ()))
    scaled = (numbers.to(torch.float32) * factor).clamp(-format.fmax, format.fmax).to(kind)
    reciprocal = (1.0 / factor).clamp(max=FP32_MAX)
    if scale is not None:
        return scaled, reciprocal
    return _put_together(scaled, tensor), reciprocal.reshape(*tensor.shape[:-1], -1)


def row_of_blocks(tensor: Tensor, blocks: Blocks) -> Tensor:
    """Return what a format in blocks loses of a tensor, as `plain.lost_row` gives it."""
    # The tensor is real and has an element. Blocks of nothing but zeros have no scale.
    rows = _rows(tensor.detach()).to(torch.float32)
    whole = _finite_amax(rows, (0, 1)).reshape(())
    # A block ends where the tensor does.
    height, width = (min(pair) for pair in zip(blocks[1:3], rows.shape, strict=True))
    cut = blocks._replace(height=height, width=width)
    parts = [_part_row(part, cut, whole) for part in _parts(rows, height, width)]
    return parts[0] if len(parts) == 1 else merged_rows(torch.stack(parts))


def _parts(rows: Tensor, height: int, width: int) -> Iterator[Tensor]:
    """Yield parts of whole blocks, each small enough to be taken at once."""
    down = max(PART_ELEMENTS // rows.shape[1] // height, 1) * height
    across = max(PART_ELEMENTS // height // width, 1) * width
    for part in torch.split(rows, down):
        yield from torch.split(part, across, dim=1)


def _part_row(rows: Tensor, blocks: Blocks, whole: Tensor) -> Tensor:
    cut = _cut(rows, blocks.height, blocks.width)
    scales = blocks.scales(cut, whole)
    output = there_and_back(cut, blocks.format, scales)
    magnitude = cut.abs()
    # A rounding's room, as for one scale: the largest number of a block is not clipped.
    over = magnitude * scales > blocks.format.fmax * (1 + 2.0**-22)
    error = cut.to(torch.float64) - output.to(torch.float64)
    has_numbers = magnitude.amax((1, 3), keepdim=True) > 0
    least = torch.where(has_numbers, scales, math.inf).amin()
    most = torch.where(has_numbers, scales, 0.0).amax()
    return row_with(
        neutral_row(rows.device),
        n_over=over.sum(),
        n_under=((output == 0) & (magnitude > 0)).sum(),
        n_total=rows.numel(),
        square_error=(error * error).sum(),
        scale_min=torch.where(least < math.inf, least, math.nan),
        scale_max=torch.where(most > 0, most, math.nan),
    )


def block_range(elements: Tensor, stat: BlockRange) -> Tensor:
    """Return the largest dynamic range of all blocks, in fp64 without dimensions."""
    # NaN are left out; an infinity makes it infinite; it is 0 for nothing but zeros.
    rows = _rows(elements.detach())
    # A block ends where the tensor does.
    down, across = (min(stat.block_size, length) for length in rows.shape)
    found = _largest_range(rows, down if stat.dims == 2 else 1, across)
    if stat.dims == 1 and stat.both_ways:
        found = torch.maximum(found, _largest_range(rows, down, 1))
    return found


def _largest_range(rows: Tensor, height: int, width: int) -> Tensor:
    largest = [_range(_cut(part, height, width)) for part in _parts(rows, height, width)]
    return torch.stack(largest).amax()


def _range(cut: Tensor) -> Tensor:
    numbers = cut if cut.dtype is torch.float64 else cut.to(torch.float32)
    magnitude = numbers.abs()
    amax = magnitude.nan_to_num(0.0, math.inf).amax((1, 3))
    unused = magnitude.isnan() | (magnitude == 0)
    amin = torch.where(unused, math.inf, magnitude).amin((1, 3))
    spread = torch.log2(amax.to(torch.float64)) - torch.log2(amin.to(torch.float64))
    spread = torch.where(amax == math.inf, math.inf, spread)
    return torch.where(amax == 0, 0.0, spread).amax()
