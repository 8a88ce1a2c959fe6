"""Emulation of the 8-bit formats against their grids, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from awkward_tensors import TENSORS, normal, random_bits
from fp8_grid import magnitudes, nearest, quantised, same_numbers
from torch import Tensor

from dftrace_ai import _native
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import (
    fake_quantise,
    fake_quantise_in_blocks,
    quantisation_record,
    quantisation_row,
    scale_of,
    thresholds,
)
from dftrace_ai.inspect.numerics.record import NEUTRAL, final_values, with_quantisation

FP32_MAX = torch.finfo(torch.float32).max
BOTH = pytest.mark.parametrize("format", Format, ids=lambda format: format.name)


def test_the_grids_are_those_of_the_formats() -> None:
    e4m3, e5m2 = magnitudes(Format.E4M3), magnitudes(Format.E5M2)
    assert (e4m3[-1], e4m3[1], len(e4m3)) == (448, 2.0**-9, 127)
    assert (e5m2[-1], e5m2[1], len(e5m2)) == (57344, 2.0**-16, 124)
    assert (e4m3.diff() > 0).all()
    assert (e5m2.diff() > 0).all()


def lost(x: Tensor, y: Tensor) -> int:
    """How many numbers that were not zero have become it."""
    return int(((y == 0) & (x != 0)).sum())


@BOTH
def test_four_million_random_bit_patterns(format: Format) -> None:
    """Native, portable and in torch's operations: all as the grid says."""
    for seed in range(4):
        x = random_bits(1 << 20, seed)
        wanted = quantised(x, format, 1.0)
        under = lost(x, wanted)
        for instructions in ("best", "portable"):
            _native.tensor_instructions(instructions)
            try:
                found, counts = fake_quantise(x, format, 1.0, with_counts=True)
            finally:
                _native.tensor_instructions("best")
            assert same_numbers(found, wanted)
            assert counts[12] == under
        in_torch, row = plain.fake_quantise(x, format, 1.0, with_counts=True)
        assert same_numbers(in_torch, wanted)
        assert row is not None
        assert row[11:13].tolist() == list(counts[11:13])


@BOTH
@pytest.mark.parametrize("scale", [37.5, 1.1e-3, 123456.0, 2.0**-126, FP32_MAX, 1e-44])
def test_numbers_around_zero_under_any_scale(
    format: Format, scale: float, instructions: str
) -> None:
    exact_scale = float(torch.tensor(scale))
    x = normal(300_007) * min(10 / exact_scale, 1e37)
    wanted = quantised(x, format, exact_scale)
    if exact_scale < 2.0**-126:  # its reciprocal is no fp32 number, so the largest one is taken
        scaled = (x.double() * exact_scale).float().double()
        wanted = (nearest(scaled, format) * FP32_MAX).float()
    assert same_numbers(fake_quantise(x, format, scale), wanted)
    assert same_numbers(plain.fake_quantise(x, format, scale)[0], wanted)


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_16_bit_number(format: Format, dtype: torch.dtype, instructions: str) -> None:
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    x = bits.view(torch.float16).double() if dtype is torch.float64 else bits.view(dtype)
    for scale in (1.0, 0.013, 224.0, 3e30):
        wanted = quantised(x, format, float(torch.tensor(scale)))
        found, counts = fake_quantise(x, format, scale, with_counts=True)
        assert found.dtype is dtype
        assert same_numbers(found, wanted)
        assert same_numbers(plain.fake_quantise(x, format, scale)[0], wanted)
        under, over = thresholds(scale, format)
        size = x.float().abs()
        assert counts[12] == int(((size <= under) & (x != 0)).sum())
        assert counts[11] == int((size > over).sum())


@BOTH
def test_the_counts_of_both_passes_agree(format: Format, instructions: str) -> None:
    for kind in ("any bits", "inf and NaN", "sparse", "mean 1e4", "1e20"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = TENSORS[kind]()[-40_009:].to(dtype)
            for scale in (1.0, 3e4, 1e-3):
                counts = quantisation_record(x, format, scale)
                record = collect(x, scale=scale, format=format)
                assert record is not None
                assert record[11:14] == counts[11:14], kind
                assert record[15:] == counts[15:]
                row = plain.row_of(x, scale=scale, format=format)
                assert row[11:14].tolist() == list(record[11:14]), kind


def scales() -> list[float]:
    """Scales of every size, and those that current scaling makes."""
    generator = torch.Generator().manual_seed(5)
    exponents = torch.rand(400, generator=generator) * 250 - 125
    amaxes = normal(300, 8).abs()
    made = [scale_of(float(a), Format.E4M3) for a in amaxes]
    return [*torch.exp2(exponents).tolist(), *made, 1.0, FP32_MAX, 2.0**-126, 2.0**-140]


def neighbour(value: float, towards: float) -> float:
    return float(torch.nextafter(torch.tensor(value), torch.tensor(towards)))


@BOTH
def test_thresholds_are_where_the_grid_has_them(format: Format) -> None:
    for scale in scales():
        exact = float(torch.tensor(scale))
        under, over = thresholds(scale, format)
        on_edge = torch.tensor([under, neighbour(under, math.inf)]).double()
        scaled = (on_edge * exact).float().double()
        values = nearest(scaled, format)
        assert values[0] == 0
        assert values[1] > 0 or under == FP32_MAX
        device = plain.thresholds_of(torch.tensor(scale), format)
        assert (float(device[0]), float(device[1])) == (under, over)
        # What is clipped by more than a rounding is counted, what is on the grid is not.
        highest = min(format.fmax / exact, FP32_MAX)
        assert highest <= over <= max(highest * (1 + 2.0**-21), 2.0**-147)


@BOTH
def test_current_scaling_clips_nothing(format: Format, instructions: str) -> None:
    for seed in range(300):
        x = normal(50, seed)
        record = collect(x, scale=scale_of(float(x.abs().max()), format), format=format)
        assert record is not None
        assert record[11] == 0
    clipped = collect(torch.tensor([math.inf, -math.inf, math.nan]), scale=1e-38, format=format)
    assert clipped is not None
    assert clipped[11] == 2


@BOTH
def test_scales(format: Format) -> None:
    assert scale_of(2.0, format) == format.fmax / 2
    assert scale_of(2.0, format, margin=3) == format.fmax / 16
    assert scale_of(2.0, format, margin=-1) == format.fmax
    for amax in (0.0, math.inf, math.nan):
        assert scale_of(amax, format) == 1.0
        assert scale_of(amax, format, previous=7.0) == 7.0
        assert float(plain.scale_of(torch.tensor(amax), format, previous=7.0)) == 7.0
    assert scale_of(1e-44, format) == FP32_MAX
    assert scale_of(1.0, format, margin=-300) == FP32_MAX
    assert scale_of(1.0, format, margin=300) == 2.0**-126
    for amax, margin in zip(normal(200).abs().tolist(), range(-100, 100), strict=True):
        fp32 = torch.tensor(format.fmax) / torch.tensor(amax) / torch.tensor(2.0).pow(margin)
        assert scale_of(amax, format, margin) == float(fp32)
        assert float(plain.scale_of(torch.tensor(amax), format, margin)) == float(fp32)


def test_what_is_lost_in_a_record(instructions: str) -> None:
    x = torch.tensor([1.0, 1.03, 500.0, -1e-4, 0.0])
    output, counts = fake_quantise(x, Format.E4M3, 1.0, with_counts=True)
    assert output.tolist() == [1.0, 1.0, 448.0, -0.0, 0.0]
    error = float(((x.double() - output.double()) ** 2).sum())
    assert counts == pytest.approx(
        (*NEUTRAL[:11], 1.0, 1.0, 5.0, error, 1.0, 1.0), rel=1e-12, nan_ok=True
    )
    assert quantisation_record(x, Format.E4M3, 1.0) == counts
    record = collect(x)
    assert record is not None
    values = final_values(
        with_quantisation(record, counts),
        ["mean", "underflows%", "fp8_current_scaling_overflows%", "mse", "scale_inv_min"],
    )
    assert values["mean"] == pytest.approx(float(x.double().mean()), rel=1e-6)
    assert values["underflows%"] == 20.0
    assert values["fp8_current_scaling_overflows%"] == 20.0
    assert values["mse"] == pytest.approx(error / 5, rel=1e-6)
    assert values["scale_inv_min"] == 1.0


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float8_e5m2])
def test_other_numbers_are_counted_as_fp32(dtype: torch.dtype) -> None:
    x = (normal(3000) * 500).to(dtype)
    wanted = quantisation_record(x.float(), Format.E4M3, 3.0)
    assert quantisation_record(x, Format.E4M3, 3.0) == wanted
    row = quantisation_row(x, Format.E4M3, 3.0)
    assert row.tolist() == pytest.approx(wanted, rel=1e-12, nan_ok=True)
    with pytest.raises(InspectTypeError, match="complex"):
        quantisation_record(x.to(torch.complex64), Format.E4M3, 3.0)


def test_the_quantised_tensor_has_the_shape_and_layout_of_the_first() -> None:
    x = normal(60_000).reshape(3, 20, 100, 10)
    wanted = quantised(x, Format.E5M2, 2.0)
    for view in (
        lambda t: t,
        lambda t: t.permute(0, 2, 3, 1),
        lambda t: t[:, ::2],
        lambda t: t.contiguous(memory_format=torch.channels_last),
    ):
        source = view(x)
        kept = source.clone()
        found = fake_quantise(source, Format.E5M2, 2.0)
        assert same_numbers(found, view(wanted))
        assert torch.equal(source, kept)
        if source.is_contiguous(memory_format=torch.channels_last):
            assert found.stride() == source.stride()


def test_the_imaginary_part_of_a_conjugate_has_the_other_sign() -> None:
    numbers = normal(1000)
    view = torch.complex(numbers, numbers).conj().imag
    for source, wanted in ((view, -numbers), (view[3:4], -numbers[3:4])):
        found, counts = fake_quantise(source, Format.E4M3, 1.0, with_counts=True)
        assert same_numbers(found, quantised(wanted, Format.E4M3, 1.0))
        same_counts = quantisation_record(wanted, Format.E4M3, 1.0)
        assert counts == pytest.approx(same_counts, rel=1e-12)


def test_no_gradient_flows_and_an_empty_tensor_stays_empty() -> None:
    leaf = normal(100).requires_grad_()
    assert not fake_quantise(leaf * 2, Format.E4M3, 1.0).requires_grad
    assert not fake_quantise(leaf.double(), Format.E4M3, 1.0).requires_grad
    empty, counts = fake_quantise(torch.empty(0, 3), Format.E4M3, 1.0, with_counts=True)
    assert empty.shape == (0, 3)
    assert final_values(counts, ["mse"]) == {}


def test_what_is_not_quantised() -> None:
    for tensor in (torch.arange(5), torch.ones(3, dtype=torch.complex64)):
        with pytest.raises(InspectTypeError):
            fake_quantise(tensor, Format.E4M3, 1.0)
    for scale in (0.0, -1.0, math.inf, math.nan, 1e39):
        for dtype in (torch.float32, torch.float64):
            with pytest.raises(InspectValueError, match="scale"):
                fake_quantise(torch.ones(3, dtype=dtype), Format.E4M3, scale)


TORCH_TYPES = {Format.E4M3: torch.float8_e4m3fn, Format.E5M2: torch.float8_e5m2}


def block_by_block(x: Tensor, format: Format, margin: int = 0) -> Tensor:
    """MXFP8 by hand: torch's own cast, under the smallest power of two that clips nothing."""
    rows = x.double().reshape(-1, x.shape[-1] if x.dim() else 1)
    blocks = []
    for block in rows.split(32, -1):
        amax = block.abs().amax(-1, keepdim=True)
        # Surely too small, and never by more than some powers: from -127 on it took seconds.
        power = (torch.frexp(amax / format.fmax).exponent - 3.0).clamp(min=-127)
        while (short := amax > format.fmax * 2.0**power).any():
            power[short] += 1
        scale = 2.0 ** (power + margin).clamp(-127, 120)
        cast = (block / scale).float().clamp(-format.fmax, format.fmax).to(TORCH_TYPES[format])
        blocks.append((cast.double() * scale).to(x.dtype))
    return torch.cat(blocks, -1).reshape(x.shape)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_of_mxfp8_are_those_of_torch_s_types(format: Format, dtype: torch.dtype) -> None:
    magnitudes = torch.logspace(-30, 30, 96) if dtype is not torch.float16 else torch.ones(96)
    many = (normal(96 * 40).reshape(40, 96) * magnitudes).to(dtype)
    exact = torch.tensor([format.fmax, -1.0, format.fmax / 2, 0.0] * 16).to(dtype)
    shapes = [(40, 96), (96, 40), (2, 5, 384), (3840,), (8, 480), (128, 30)]
    for x in (*map(many.reshape, shapes), many.t(), exact, exact[:0], many[0, 0], many[:0]):
        for margin in (0, 1, -1, 200, -200):
            found = fake_quantise_in_blocks(x, format, margin)
            if x.numel():
                assert same_numbers(found, block_by_block(x, format, margin)), (x.shape, margin)
            assert (found.shape, found.dtype) == (x.shape, x.dtype)


def test_what_is_no_number_stays_within_its_block() -> None:
    x = normal(96).reshape(1, 96)
    strange = x.clone()
    strange[0, 40] = torch.nan
    found = fake_quantise_in_blocks(strange, Format.E4M3)
    assert found.isnan().sum() == 1
    expected = block_by_block(torch.where(strange.isnan(), 0.0, strange), Format.E4M3)
    assert same_numbers(torch.where(found.isnan(), 0.0, found), expected)
    strange[0, 40] = -torch.inf
    found = fake_quantise_in_blocks(strange, Format.E4M3)
    assert found[0, 40] == -torch.inf
    assert same_numbers(found[:, :32], expected[:, :32])
    assert same_numbers(found[:, 64:], expected[:, 64:])
