"""Records and statistics of tensors against fp64, for every kernel, and by their formulas bit for bit."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest
import torch
from awkward_tensors import TENSORS, N, assert_alike, normal, random_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import dftrace_ai._native as _native
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.memory import ELEMENTS
from dftrace_ai.inspect.numerics.record import FIELDS, NEUTRAL, Record, final_values
from dftrace_ai.inspect.numerics.statistics import (
    BLOCK_PREFIXES,
    COLUMNWISE,
    FP8_PREFIXES,
    FP8_STATS,
    TENSOR_STATS,
)


def expected_record(tensor: Tensor) -> Record:
    """The record, in fp64 and one operation after the other."""
    x = tensor.detach().reshape(-1)
    if not x.is_floating_point():
        x = x.float()
    x = x.double()
    known, finite = x[~x.isnan()], x[x.isfinite()]
    nonzero = known[known != 0].abs()
    mean = math.fsum(finite.tolist()) / len(finite) if len(finite) else 0.0
    return (
        float(len(finite)),
        mean,
        float(((finite - mean) ** 2).sum()),
        math.fsum(finite.abs().tolist()),
        float(known.min()) if len(known) else math.inf,
        float(known.max()) if len(known) else -math.inf,
        float(nonzero.min()) if len(nonzero) else math.inf,
        float(known.abs().max()) if len(known) else 0.0,
        float(x.isnan().sum()),
        float(x.isinf().sum()),
        float((x == 0).sum()),
        *(0.0, 0.0, float(len(x)), 0.0, math.nan, math.nan),
    )


def check_record(found: Record | None, tensor: Tensor) -> None:
    assert found is not None
    wanted = expected_record(tensor)
    assert_alike(found, wanted)
    assert found[14] == 0
    n, mean, m2, _ = wanted[:4]
    norm = math.sqrt(m2 + n * mean * mean)
    assert math.sqrt(found[2] + n * found[1] * found[1]) == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_every_kind_in_every_format(kind: str, dtype: torch.dtype, instructions: str) -> None:
    tensor = TENSORS[kind]().to(dtype)
    check_record(collect(tensor), tensor)
    if instructions == "portable" and dtype in (torch.float32, torch.bfloat16):
        check_record(tuple(plain.row_of(tensor).tolist()), tensor)


def test_every_16_bit_number_counts_once(instructions: str) -> None:
    patterns = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        tensor = patterns.view(dtype)
        check_record(collect(tensor), tensor)
        for value in tensor[::97].split(1):
            check_record(collect(value), value)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(-5, 200_000, dtype=torch.int64),
        torch.arange(0, 256, dtype=torch.int32).to(torch.uint8),
        torch.tensor([True, False, True]),
        torch.tensor([-(2**31), 7], dtype=torch.int32),
    ],
    ids=lambda tensor: str(tensor.dtype),
)
def test_integers_are_taken_as_fp32(tensor: Tensor) -> None:
    check_record(collect(tensor), tensor)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_numbers_are_what_they_are(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    tensor = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    check_record(collect(tensor), tensor.float())


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[3:, 1:],
        lambda x: x.reshape(10, 20, 50, 10).permute(3, 1, 0, 2),
        lambda x: x.reshape(10, 20, 50, 10).contiguous(memory_format=torch.channels_last),
        lambda x: x[:1].expand(40, 500),
        lambda x: x.t()[2:5],
        lambda x: x[:, :1],
    ],
    ids=["transposed", "strided", "cut", "permuted", "channels last", "expanded", "rows", "column"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_any_layout(view, dtype: torch.dtype) -> None:
    tensor = view((normal(100_000) * 50).reshape(200, 500).to(dtype))
    check_record(collect(tensor), tensor)


def test_a_transposed_tensor_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = normal(100_000).reshape(200, 500).t()
    wanted = collect(tensor.contiguous())

    def copied(*_: object, **__: object) -> Tensor:
        raise AssertionError("copied")

    monkeypatch.setattr(torch.Tensor, "contiguous", copied)
    monkeypatch.setattr(torch.Tensor, "clone", copied)
    found = collect(tensor)
    assert found is not None
    assert wanted is not None
    assert found[4:] == pytest.approx(wanted[4:], nan_ok=True)


def test_tensors_that_are_not_plain() -> None:
    class Marked(torch.Tensor):
        pass

    x = normal(1000)
    check_record(collect(torch.nn.Parameter(x)), x)
    check_record(collect((x.requires_grad_() * 2).exp()), (x * 2).exp())
    check_record(collect(x.detach().as_subclass(Marked)), x)
    negative = torch.complex(x.detach(), x.detach()).conj().imag
    check_record(collect(negative), -x)
    check_record(collect(negative[:1]), -x[:1])
    check_record(collect(torch.eye(30).to_sparse()), torch.eye(30))


def test_empty_tensors_have_no_record() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        assert collect(torch.empty(0, 5, dtype=dtype)) is None
    assert collect(torch.empty(3, 0).t(), scale=1.0, format=Format.E4M3) is None


def test_what_has_no_statistics_is_refused() -> None:
    with pytest.raises(InspectTypeError, match="complex"):
        collect(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(TypeError):
        collect(torch.ones(0, dtype=torch.complex64))
    with pytest.raises(InspectValueError, match="format"):
        collect(torch.ones(3), scale=1.0)
    for scale in (0.0, -1.0, math.inf, math.nan, 1e39, 1e-46):
        with pytest.raises(InspectValueError, match="scale"):
            collect(torch.ones(3), scale=scale, format=Format.E4M3)


def test_a_process_that_flushes_subnormals_sees_them_all_the_same(instructions: str) -> None:
    tensor = normal(N) * 1e-40
    wanted = collect(tensor)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush subnormal numbers")
    try:
        assert collect(tensor) == pytest.approx(wanted, nan_ok=True, rel=0, abs=0)
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("kind", TENSORS)
def test_without_zeros_the_rest_is_the_same(kind: str, instructions: str) -> None:
    tensor = TENSORS[kind]()
    six, all_of_it = collect(tensor, zeros=False), collect(tensor)
    assert six is not None
    assert all_of_it is not None
    for index, (one, other) in enumerate(zip(six, all_of_it, strict=True)):
        if FIELDS[index] in {"n_zero", "amin_nonzero"}:
            assert math.isnan(one)
        else:
            assert one == other or (math.isnan(one) and math.isnan(other)), FIELDS[index]


def torch_values(x: Tensor) -> dict[str, float]:
    """What torch says of a tensor of fp64 numbers."""
    nonzero = x[x != 0].abs()
    largest = x.abs().max()
    spread = largest.log2() - nonzero.min().log2() if len(nonzero) else torch.zeros(())
    return {
        "min": float(x.min()),
        "max": float(x.max()),
        "mean": float(x.mean()),
        "std": float(x.std()) if len(x) > 1 and x.isfinite().all() else math.nan,
        "l1_norm": float(x.abs().sum()),
        "l2_norm": float(x.square().sum().sqrt()),
        "cur_amax": float(largest),
        "dynamic_range": float(spread),
    }


@pytest.mark.parametrize("kind", TENSORS)
def test_final_values_are_torchs(kind: str) -> None:
    tensor = TENSORS[kind]()
    record = collect(tensor)
    assert record is not None
    found = final_values(record, TENSOR_STATS)
    assert tuple(found) == TENSOR_STATS
    wanted = torch_values(tensor.double())
    for stat in TENSOR_STATS:
        tolerance = 1e-5 if stat == "std" else 1e-6
        floor = 1e-8 * abs(wanted["l1_norm"]) / len(tensor) if stat in {"mean", "std"} else 0.0
        as_fp32 = float(torch.tensor(wanted[stat], dtype=torch.float64).float())
        assert found[stat] == pytest.approx(as_fp32, rel=tolerance, abs=floor, nan_ok=True), stat
        assert math.isnan(found[stat]) or float(torch.tensor(found[stat]).float()) == found[stat]


def test_final_values_of_nothing_and_of_names_that_are_not_known() -> None:
    assert final_values(NEUTRAL, TENSOR_STATS) == {}
    record = collect(torch.ones(3))
    assert record is not None
    with pytest.raises(InspectValueError, match="medain"):
        final_values(record, ["mean", "medain"])


def _infinite_mean(r: Record) -> float:
    if r.min > -math.inf:
        return math.inf
    return math.nan if r.max == math.inf else -math.inf


def _dynamic_range(r: Record) -> float:
    if r.n_inf:
        return math.nan if math.isinf(r.amin_nonzero) else math.inf
    if math.isnan(r.amin_nonzero):
        return math.nan
    return math.log2(r.amax) - math.log2(r.amin_nonzero) if r.amax else 0.0


def _mean(r: Record) -> float:
    return _infinite_mean(r) if r.n_inf else r.mean


def _std(r: Record) -> float:
    return math.sqrt(r.m2 / (r.n_finite - 1)) if r.n_finite > 1 and not r.n_inf else math.nan


def _l2_norm(r: Record) -> float:
    return math.inf if r.n_inf else math.sqrt(r.m2 + r.n_finite * r.mean * r.mean)


FORMULAS: dict[str, Callable[[Record], float]] = {
    "min": lambda r: r.min,
    "max": lambda r: r.max,
    "mean": _mean,
    "std": _std,
    "l1_norm": lambda r: math.inf if r.n_inf else r.absolute_sum,
    "l2_norm": _l2_norm,
    "cur_amax": lambda r: r.amax,
    "dynamic_range": _dynamic_range,
    "underflows%": lambda r: 100 * r.n_under / r.n_total,
    "overflows%": lambda r: 100 * r.n_over / r.n_total,
    "mse": lambda r: r.square_error / r.n_total,
    "scale_inv_min": lambda r: 1 / r.scale_max,
    "scale_inv_max": lambda r: 1 / r.scale_min,
}


def bits(value: float) -> bytes:
    """All there is to a number; one NaN is as good as another."""
    return b"nan" if math.isnan(value) else struct.pack("d", value)


def wanted(record: Record, stat: str) -> float:
    """The statistic by its formula, rounded to fp32."""
    plain = stat.removesuffix(COLUMNWISE)
    for prefix in (*FP8_PREFIXES, *BLOCK_PREFIXES):
        plain = plain.removeprefix(prefix)
    if record.n_nan and stat in TENSOR_STATS:
        return math.nan
    return float(torch.tensor(FORMULAS[plain](record), dtype=torch.float64).float())


kinds = st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64])
numbers = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -3.4e38, 1.0, 1.0]),
)
tensors = st.one_of(
    st.builds(
        lambda values, dtype: torch.tensor(values, dtype=torch.float64).to(dtype),
        *(st.lists(numbers, min_size=1, max_size=40), kinds),
    ),
    st.builds(
        lambda count, seed, dtype: random_bits(count, seed).to(dtype),
        *(st.integers(1, 70), st.integers(0, 99), kinds),
    ),
    st.builds(
        lambda count, seed, scale, dtype: (normal(count, seed) * scale + scale).to(dtype),
        *(st.integers(1, 3000), st.integers(0, 99), st.sampled_from([1e-3, 1.0, 1e4]), kinds),
    ),
    st.builds(lambda count: torch.arange(-3, count), st.integers(-2, 50)),
)
asked = st.lists(st.sampled_from([*TENSOR_STATS, *FP8_STATS]), max_size=10)


@settings(max_examples=400, derandomize=True, database=None, deadline=None)
@given(tensor=tensors, stats=asked, zeros=st.booleans(), cast=st.booleans())
def test_every_value_is_that_of_its_formula(
    tensor: Tensor, stats: list[str], zeros: bool, cast: bool
) -> None:
    record = (
        collect(tensor, scale=50.0, format=Format.E4M3) if cast else collect(tensor, zeros=zeros)
    )
    assert record is not None
    found = final_values(record, stats)
    assert list(found) == list(dict.fromkeys(stats))
    for stat, value in found.items():
        assert bits(value) == bits(wanted(record, stat)), (stat, record)


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("count", [2, 17, 1000, 20_000, 300_000])
def test_a_tensor_is_read_where_and_as_it_lies(dtype: torch.dtype, count: int) -> None:
    """Whatever holds the elements: a parameter, one with a gradient, a view into another."""
    whole = (normal(count + 9) * 3).to(dtype)
    part = whole[4 : 4 + count]
    kernels = _native.tensor_record(part.data_ptr(), count, ELEMENTS[dtype], 1, 1, 1.0, 0)
    for same in (
        part,
        torch.nn.Parameter(part),
        part.clone().requires_grad_(),
        part.clone().requires_grad_() * 1,
        part.reshape(1, -1, 1),
        part.view(-1, 1).expand(-1, 1),
    ):
        assert list(map(bits, collect(same) or ())) == list(map(bits, kernels))


def test_memory_that_is_not_there_is_not_read() -> None:
    """Sharded training frees that of parameters; a view of it still has an address and a size."""
    whole = torch.ones(2000)
    parts = [whole[:1000], whole[1000:], torch.nn.Parameter(whole[7:])]
    whole.untyped_storage().resize_(16)
    for gone in parts:
        with pytest.raises(InspectTypeError, match="freed"):
            collect(gone)
