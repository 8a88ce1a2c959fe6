"""The native kernels for GPUs: run on the CPU by a stand-in for the driver, and on a GPU where there is one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from awkward_tensors import TENSORS, N, assert_alike, normal
from gpu_stand_in import StandIn, stand_in
from torch import Tensor

import dftrace_ai._native as _native
from dftrace_ai.inspect.collecting.rings import Asked
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import scale_of
from dftrace_ai.inspect.numerics.plain import ROW_FIELDS, VALUES
from dftrace_ai.inspect.numerics.plain import values_of_row as plain_values
from dftrace_ai.inspect.numerics.ring import Ring
from dftrace_ai.inspect.numerics.writers import CudaPass

# Beside those of all kernels: what these could do wrong.
MORE: dict[str, Callable[[], Tensor]] = {
    "constant and NaN": lambda: torch.cat([torch.full((999,), 2.0), torch.tensor([math.nan])]),
    "NaN first": lambda: torch.cat([torch.tensor([math.nan, math.inf]), normal(20_009)]),
    "an outlier first": lambda: torch.cat([torch.tensor([1e6]), normal(20_010)]),
    "1e18": lambda: normal(N) * 1e18,
    "1e-20 beside 1": lambda: torch.cat([normal(9999) * 1e-20, normal(9999)]),
    "many NaN and infinities": lambda: normal(N).where(
        torch.arange(N) % 97 > 1, torch.tensor([math.nan, math.inf]).repeat(N // 2 + 1)[:N]
    ),
}
KINDS = TENSORS | MORE
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module", params=DEVICES)
def kernels(request) -> CudaPass:
    """The kernels, by the stand-in or on a GPU."""
    if request.param == "cpu":
        return stand_in().new_pass()
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return CudaPass(torch.device("cuda", torch.cuda.current_device()))


@pytest.fixture
def driver() -> StandIn:
    found = stand_in()
    yield found
    state = found.state
    state.launch_error = state.load_error = state.capturing = state.no_context = 0


def row_of(kernels: CudaPass, tensor: Tensor, **limits) -> list[float]:
    device = kernels._device
    row = torch.full((ROW_FIELDS,), 7.0, dtype=torch.float64, device=device)
    kernels.write_row(
        tensor if tensor.device.type == device.type else tensor.to(device), row, **limits
    )
    return row.tolist()


def exact_row(tensor: Tensor) -> list[float]:
    """In fp64 by torch, whatever the format: the record without what a format would lose."""
    return plain.row_of(tensor.double().cpu()).tolist()


def check(found: list[float], tensor: Tensor, **limits) -> None:
    wanted = collect(tensor.cpu(), **limits)
    assert wanted is not None
    assert_alike(found, wanted)
    if tensor.dtype is not torch.float64:
        exact = exact_row(tensor)
        n, size = max(exact[0], 1.0), exact[3] / max(exact[0], 1.0)
        assert abs(found[1] - exact[1]) <= 1e-6 * size
        assert math.sqrt(found[2] / n) == pytest.approx(
            math.sqrt(exact[2] / n), rel=1e-5, abs=1e-7 * size
        )
        assert found[3] == pytest.approx(exact[3], rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_is_that_of_the_cpu(kernels: CudaPass, kind: str) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        tensor = KINDS[kind]()
        tensor = (tensor if kernels._device.type == "cuda" else tensor[-20_011:]).to(dtype)
        check(row_of(kernels, tensor), tensor)
        limits = {"scale": 3.0, "format": Format.E5M2}
        check(row_of(kernels, tensor, **limits), tensor, **limits)


def test_the_same_bits_each_time(kernels: CudaPass) -> None:
    tensor = normal(N * (20 if torch.cuda.is_available() else 1))
    first = repr(row_of(kernels, tensor))
    assert all(repr(row_of(kernels, tensor)) == first for _ in range(20))


def test_any_address_and_layout(kernels: CudaPass) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = (normal(5000) * 3).to(dtype)
        for first in (1, 2, 3, 7):
            for count in (1, 2, 5, 4000):
                check(row_of(kernels, x[first : first + count]), x[first : first + count])
        matrix = x[:4800].reshape(60, 80)
        for view in (matrix.t(), matrix[:, ::3], matrix[1:, 2:], matrix[:1].expand(7, 80)):
            check(row_of(kernels, view), view)
    turned = torch.view_as_complex(normal(600).reshape(300, 2)).conj().imag
    check(row_of(kernels, turned), turned)


def test_other_formats_are_taken_as_fp32(kernels: CudaPass) -> None:
    for dtype in (torch.int32, torch.bool, torch.float8_e4m3fn):
        tensor = (normal(9001) * 3).to(dtype)
        check(row_of(kernels, tensor), tensor)


@pytest.mark.parametrize("size", [1e160, 1e200, 1.7e308])
def test_numbers_beyond_fp32(kernels: CudaPass, size: float) -> None:
    spread = normal(20_000).double().clamp(-1, 1) * size
    some = torch.cat([normal(20_000).double(), spread[:50]])
    for tensor in (spread, torch.full((20_000,), size, dtype=torch.float64), some):
        found, wanted = row_of(kernels, tensor), collect(tensor)
        assert wanted is not None
        assert found == pytest.approx(wanted, rel=1e-9, abs=0, nan_ok=True)


@pytest.mark.parametrize("format", Format)
def test_a_scale_that_stays_on_the_device(kernels: CudaPass, format: Format) -> None:
    tensor = normal(5000).to(kernels._device)
    for margin in (-2, 0, 100, -100):
        scale = plain.scale_of(tensor.abs().amax(), format, margin=margin)
        found = row_of(kernels, tensor, scale=scale, format=format)
        same = scale_of(float(tensor.abs().max()), format, margin=margin)
        check(found, tensor, scale=same, format=format)


@pytest.mark.parametrize("kind", [*KINDS, "none"])
def test_the_values_of_a_record(kernels: CudaPass, kind: str) -> None:
    cpu = torch.device("cpu")
    row = plain.neutral_row(cpu) if kind == "none" else plain.row_of(KINDS[kind]())
    found = kernels.values_of(row.to(kernels._device), VALUES)
    wanted = {stat: float(value) for stat, value in plain_values(row, VALUES).items()}
    assert {stat: float(value) for stat, value in found.items()} == pytest.approx(
        wanted, rel=1e-6, nan_ok=True
    )


def test_many_tensors_in_one_launch_have_the_records_of_each(kernels: CudaPass) -> None:
    tensors = [make()[-2500:] for make in KINDS.values()]
    tensors += [(normal(size, size) * 3 + 1) for size in (1, 2047, 2049, 200_000)]
    tensors += [x.to(dtype) for dtype in (torch.bfloat16, torch.float16) for x in tensors[-2:]]
    tensors += [normal(900).double(), torch.arange(70), normal(600).reshape(20, 30).t()]
    tensors += [normal(50).reshape(5, 10)[:, ::2], torch.full((3000,), 1e20).double()]
    tensors = [tensor.to(kernels._device) for tensor in tensors]
    rows = torch.full((len(tensors), ROW_FIELDS), 7.0, dtype=torch.float64, device=kernels._device)
    for _ in range(2):  # the second time by the tables of the first
        kernels.write_rows(tensors, rows)
        for tensor, row in zip(tensors, rows.tolist(), strict=True):
            check(row, tensor)
        for tensor in tensors:
            tensor.mul_(2).add_(1)


def test_formats_are_launched_together(driver: StandIn) -> None:
    kernels = driver.new_pass()
    tensors = [normal(300, seed) for seed in range(40)]
    rows = torch.empty(40, ROW_FIELDS, dtype=torch.float64)
    before = driver.state.launches
    kernels.write_rows(tensors, rows)
    assert driver.state.launches == before + 1
    kernels.write_rows([*tensors[:20], *(x.bfloat16() for x in tensors[20:])], rows)
    assert driver.state.launches == before + 3


def test_a_tensor_is_taken_as_it_is_only_where_its_memory_says_all(driver: StandIn) -> None:
    kernels = driver.new_pass()
    x = normal(600)
    matrix = x.reshape(20, 30)
    for taken in (x, matrix.t(), matrix[2:5], torch.nn.Parameter(x), x.double(), x.bfloat16()):
        assert kernels.holds_plain(taken)
    freed = normal(50)
    freed.untyped_storage().resize_(0)
    odd = [matrix[:, ::2], matrix[:1].expand(7, 30), x[:1], x[:0], x.int(), freed, x.to_sparse()]
    odd += [torch.empty(3, device="meta"), torch.ones(3, dtype=torch.cfloat), "no tensor"]
    for other in odd:
        assert not kernels.holds_plain(other)


def test_what_the_driver_says_is_told(driver: StandIn) -> None:
    kernels, row = driver.new_pass(), torch.empty(ROW_FIELDS, dtype=torch.float64)
    driver.state.launch_error = 700
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        kernels.write_row(normal(30), row)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        kernels.write_row(normal(30), row, scale=2.0, format=Format.E4M3)
    driver.state.launch_error = 0
    driver.state.no_context = 1
    with pytest.raises(RuntimeError, match="no context"):
        driver.new_pass()
    # Where the thread has none, or another one, the kernels' own is made the current one meanwhile.
    kernels.write_row(normal(30), row)
    assert driver.state.pushed == 0
    with pytest.raises(RuntimeError, match="cannot open"):
        _native.GpuStatistics("/nowhere/libcuda.so.1")


def test_a_driver_that_does_not_take_the_kernels_says_why(driver: StandIn) -> None:
    driver.state.load_error = 222
    driver.state.context += 1
    with pytest.raises(RuntimeError):
        _native.GpuStatistics("libm.so.6")


def test_nothing_is_written_while_a_graph_is_captured(driver: StandIn) -> None:
    told: list[bool] = []
    ring: Ring[int] = Ring(
        torch.device("cpu"), writer=driver.new_pass(), on_capture=lambda: told.append(True)
    )
    assert ring.add(normal(30)) == 0
    driver.state.capturing = 1
    assert ring.add(normal(30)) is None
    assert ring.add(normal(30)) is None
    driver.state.capturing = 0
    assert ring.add(normal(30)) == 1
    assert told == [True]


def test_a_ring_takes_tensors_as_they_are_and_others(driver: StandIn) -> None:
    ring: Ring[int] = Ring(torch.device("cpu"), writer=driver.new_pass(), slots=4)
    tensors = [normal(300, seed) for seed in range(5)]
    tensors += [tensors[0].int(), tensors[1][::2], tensors[2].reshape(30, 10).t(), tensors[3][:1]]
    assert [ring.add(tensor) for tensor in tensors] == list(range(9))
    assert float(Asked(ring, 8).values(["max"])["max"]) == float(tensors[3][0])
    assert list(ring.add_all(tensors)) == list(range(9, 18))
    ring.end_generation(0)
    records = ring.drain()[0].records
    for tensor, alone, together in zip(tensors, records, records[9:], strict=False):
        check(list(alone), tensor)
        check(list(together), tensor)
