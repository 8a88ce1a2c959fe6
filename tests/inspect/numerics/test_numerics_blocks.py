"""What formats in blocks lose, and ranges of blocks: each block by itself, by hand in fp64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from dftrace_ai.inspect.numerics.blocks import RECIPES, block_range, blocks_of
from dftrace_ai.inspect.numerics.fp8 import row_in_blocks
from dftrace_ai.inspect.numerics.record import Record, record_of
from dftrace_ai.inspect.numerics.statistics import BlockRange

FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
EVEN = torch.tensor([0, 2, 4, 6])
"""The places of those numbers of FP4 whose mantissa is even: a tie goes there."""


class Lost(NamedTuple):
    """What a block loses."""

    under: int
    square_error: float
    scale_inv: float | None  # None where it has nothing but zeros


def tiles(x: Tensor, height: int, width: int) -> Iterator[Tensor]:
    """Blocks of the rows of a tensor, in fp64; the last ones are shorter."""
    rows = x.double().reshape(-1, x.shape[-1] if x.dim() else 1)
    for band in rows.split(height, 0):
        yield from band.split(width, 1)


def in_fp8(block: Tensor) -> Lost:
    """Under the smallest power of two that clips nothing, by torch's own cast."""
    amax = float(block.abs().amax())
    power = -127.0
    while amax > 448.0 * 2.0**power:
        power += 1
    power = min(power, 120.0)
    output = (block / 2.0**power).float().to(torch.float8_e4m3fn).double() * 2.0**power
    return lost(block, output, 2.0**power if amax else None)


def in_fp4(block: Tensor, outer: float) -> Lost:
    """Under a scale in E4M3 below one for the whole tensor; the nearest number, ties to even."""
    inner = float(torch.tensor(float(block.abs().amax()) / 6 * outer).to(torch.float8_e4m3fn))
    if not inner:
        return lost(block, torch.zeros_like(block), None)
    scaled = (block.abs() * (outer / inner)).clamp(max=6.0)
    distance = (scaled[..., None] - FP4).abs()
    nearest = distance.argmin(-1)
    tie = (distance[..., EVEN] == distance.amin(-1, keepdim=True)).int()
    place = torch.where(tie.any(-1), EVEN[tie.argmax(-1)], nearest)
    return lost(block, torch.copysign(FP4[place], block) / (outer / inner), None)


def lost(block: Tensor, output: Tensor, scale_inv: float | None) -> Lost:
    under = int(((output == 0) & (block != 0)).sum())
    return Lost(under, float((block - output).square().sum()), scale_inv)


SHAPES = [(40, 96), (3, 5, 160), (500,), (140, 30), (33, 129), ()]


def tensors(dtype: torch.dtype) -> Iterator[Tensor]:
    torch.manual_seed(3)
    for shape in SHAPES:
        x = torch.randn(shape).to(dtype)
        if x.dim():
            x *= torch.logspace(-6, 2, x.shape[-1]).to(dtype)
            x[..., : x.shape[-1] // 3] *= x[..., : x.shape[-1] // 3] > 0
            x.view(-1)[: x.numel() // 4] = 0
        yield x
    yield torch.randn(96, 40).t().to(dtype)
    yield torch.zeros(4, 40, dtype=dtype)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_is_lost_is_what_each_block_loses(recipe: str, dtype: torch.dtype) -> None:
    compared = 0
    for x in tensors(dtype):
        numbers = x.float()  # all formats begin there
        whole = float(numbers.abs().amax())
        outer = 448.0 * 6.0 / whole if whole else 1.0
        for tensor in ("activation", "weight"):
            for columnwise in (False, True):
                cut = blocks_of(recipe, tensor, columnwise=columnwise)
                wanted = [
                    in_fp4(block, outer) if recipe == "nvfp4" else in_fp8(block)
                    for block in tiles(numbers, cut.height, cut.width)
                ]
                found = record_of(row_in_blocks(x, cut).tolist())
                assert found.n_total == x.numel()
                assert found.n_under == sum(one.under for one in wanted)
                error = sum(one.square_error for one in wanted)
                assert found.square_error == pytest.approx(error, rel=1e-5)
                if recipe != "nvfp4":
                    check_scales(found, [one.scale_inv for one in wanted])
                    assert found.n_over == 0
                compared += 1
    assert compared == 4 * (len(SHAPES) + 2)


def check_scales(found: Record, wanted: list[float | None]) -> None:
    known = [one for one in wanted if one is not None]
    if known:
        assert (1 / found.scale_max, 1 / found.scale_min) == (min(known), max(known))
    else:
        assert math.isnan(found.scale_min)
        assert math.isnan(found.scale_max)


def test_blocks_are_those_of_each_recipe() -> None:
    cuts = {
        (recipe, tensor, columnwise): blocks_of(recipe, tensor, columnwise=columnwise)[1:3]
        for recipe in RECIPES
        for tensor in ("gradient", "weight")
        for columnwise in (False, True)
    }
    assert cuts == {
        ("mxfp8", "gradient", False): (1, 32),
        ("mxfp8", "gradient", True): (32, 1),
        ("mxfp8", "weight", False): (1, 32),
        ("mxfp8", "weight", True): (32, 1),
        ("fp8_block_scaling", "gradient", False): (1, 128),
        ("fp8_block_scaling", "gradient", True): (128, 1),
        ("fp8_block_scaling", "weight", False): (128, 128),
        ("fp8_block_scaling", "weight", True): (128, 128),
        ("nvfp4", "gradient", False): (1, 16),
        ("nvfp4", "gradient", True): (16, 1),
        ("nvfp4", "weight", False): (16, 16),
        ("nvfp4", "weight", True): (16, 16),
    }


def test_large_tensors_are_taken_in_parts_of_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    for x in (torch.randn(140, 30), torch.randn(2500)):
        for recipe in RECIPES:
            for tensor in ("activation", "weight"):
                for columnwise in (False, True):
                    cut = blocks_of(recipe, tensor, columnwise=columnwise)
                    wide = BlockRange(32, 1, both_ways=True)
                    at_once = row_in_blocks(x, cut), block_range(x, wide)
                    with monkeypatch.context() as patched:
                        patched.setattr("dftrace_ai.inspect.numerics.blocks.PART_ELEMENTS", 1000)
                        parts = row_in_blocks(x, cut), block_range(x, wide)
                    torch.testing.assert_close(parts, at_once, rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("size", "dims", "both_ways"), [(4, 1, True), (4, 1, False), (16, 2, True)]
)
def test_the_range_of_a_block_is_the_largest_of_all(size: int, dims: int, both_ways: bool) -> None:
    stat = BlockRange(size, dims, both_ways)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for x in tensors(dtype):
            cuts = [(size if dims == 2 else 1, size)] + [(size, 1)] * (both_ways and dims == 1)
            ranges = [
                math.log2(float(used.max())) - math.log2(float(used.min()))
                for cut in cuts
                for block in tiles(x, *cut)
                if len(used := block[block != 0].abs())
            ]
            found = block_range(x, stat)
            assert found.dim() == 0
            assert float(found) == pytest.approx(max(ranges, default=0.0), rel=1e-12)


def test_a_block_ends_where_the_tensor_does() -> None:
    x = torch.randn(64, 64)
    for dims in (1, 2):
        found = block_range(x, BlockRange(10**12, dims, both_ways=True))
        assert float(found) == float(block_range(x, BlockRange(64, dims, both_ways=True)))
    few = torch.randn(3, 5)
    for recipe in RECIPES:
        for tensor in ("activation", "weight"):
            cut = blocks_of(recipe, tensor)
            bound = cut._replace(height=min(cut.height, 3), width=min(cut.width, 5))
            assert torch.equal(row_in_blocks(few, cut), row_in_blocks(few, bound))


def test_what_is_no_number_is_left_out_of_a_range_and_an_infinity_is_not() -> None:
    x = torch.tensor([[1.0, 4.0, math.nan, 0.0], [2.0, 2.0, 2.0, 2.0]])
    assert float(block_range(x, BlockRange(4))) == 2.0
    x[1, 0] = math.inf
    assert float(block_range(x, BlockRange(4))) == math.inf
    assert float(block_range(torch.arange(1, 9), BlockRange(4))) == 2.0
