"""Values of statistics, bit for bit what their formulas give, for small tensors of every kind."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from awkward_tensors import TENSORS, normal, random_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import dftrace_ai._native as _native
from dftrace_ai.inspect.errors import InspectTypeError
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.record import Record, final_values
from dftrace_ai.inspect.numerics.statistics import FP8_PREFIXES, FP8_STATS, TENSOR_STATS


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
    plain = stat
    for prefix in FP8_PREFIXES:
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


@pytest.mark.parametrize("kind", TENSORS)
def test_every_statistic_of_awkward_tensors(kind: str) -> None:
    record = collect(TENSORS[kind]())
    assert record is not None
    for stat, value in final_values(record, TENSOR_STATS).items():
        assert bits(value) == bits(wanted(record, stat)), stat


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=200),
    dtype=kinds.filter(lambda dtype: dtype != torch.float16),
)
def test_small_tensors_against_exact_arithmetic(values: list[float], dtype: torch.dtype) -> None:
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    exact = [Fraction(x) for x in tensor.double().tolist()]
    record = collect(tensor)
    assert record is not None
    found = final_values(record, ["mean", "l1_norm", "l2_norm", "min", "max"])
    absolute = float(sum(map(abs, exact)))
    assert found["l1_norm"] == pytest.approx(absolute, rel=1e-6)
    assert found["l2_norm"] == pytest.approx(
        math.sqrt(float(sum(x * x for x in exact))), rel=1e-6, abs=1e-30
    )
    assert found["mean"] == pytest.approx(
        float(sum(exact) / len(exact)), rel=1e-6, abs=1e-8 * absolute / len(exact)
    )
    assert (found["min"], found["max"]) == (
        float(tensor.float().min()),
        float(tensor.float().max()),
    )


ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}


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
    whole.untyped_storage().resize_(0)
    for gone in parts:
        with pytest.raises(InspectTypeError, match="freed"):
            collect(gone)
