"""Kernels for GPUs: interpreted, compiled for a real processor, and run on one where there is one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from awkward_tensors import TENSORS, assert_alike, normal
from device.waiting import nothing_may_wait
from torch import Tensor

from dftrace_ai.inspect import numerics
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import scale_of
from dftrace_ai.inspect.numerics.plain import ROW_FIELDS, VALUES
from dftrace_ai.inspect.numerics.plain import values_of_row as plain_values
from dftrace_ai.inspect.numerics.ring import Ring
from dftrace_ai.inspect.numerics.writers import TritonPass, has_triton

needs_triton = pytest.mark.skipif(not has_triton(), reason="Triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(scope="module")
def interpreted() -> TritonPass:
    """The pass with kernels that Triton's interpreter runs on the CPU."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton compiles for the device here, which the tests on it use")
    if not interpreter_runs_kernels():
        pytest.skip("the interpreter of this Triton cannot run the kernels, with this NumPy")
    return TritonPass(torch.device("cpu"), load_kernels())


def interpreter_runs_kernels() -> bool:
    """Whether Triton's interpreter runs what its compiler takes."""
    import small_kernel

    out = torch.ones(4)
    try:
        small_kernel.fill[(1,)](out, 1, BLOCK=4)
    except TypeError:
        return False
    return bool((out == 0).all())


def check_values(triton: TritonPass, row: Tensor) -> None:
    found = {stat: float(value) for stat, value in triton.values_of(row, VALUES).items()}
    wanted = {stat: float(value) for stat, value in plain_values(row.cpu(), VALUES).items()}
    assert found == pytest.approx(wanted, rel=1e-6, nan_ok=True)


def load_kernels() -> ModuleType:
    """The kernels anew: whether they are interpreted is settled when they are defined."""
    path = Path(numerics.__file__).parent / "triton_kernels.py"
    spec = importlib.util.spec_from_file_location("interpreted_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def row_of(kernels: TritonPass, tensor: Tensor, **limits) -> list[float]:
    row = torch.full((ROW_FIELDS,), 7.0, dtype=torch.float64, device=tensor.device)
    kernels.write_row(tensor, row, **limits)
    return row.tolist()


def check_row(found: list[float], tensor: Tensor, **limits) -> None:
    """Hold a row against the CPU's record of the same tensor."""
    wanted = collect(tensor.cpu(), **limits)
    assert wanted is not None
    assert_alike(found, wanted)


# The interpreter computes as numpy does, which warns of what IEEE 754 defines.
@needs_triton
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
class TestInterpreted:
    @pytest.mark.parametrize("kind", TENSORS)
    def test_the_same_record_as_on_the_cpu(self, interpreted: TritonPass, kind: str) -> None:
        tensor = TENSORS[kind]()[-20_011:]
        limits = {"scale": 1.0, "format": Format.E4M3}
        check_row(row_of(interpreted, tensor, **limits), tensor, **limits)

    @pytest.mark.parametrize(
        "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.bool]
    )
    def test_other_formats(self, interpreted: TritonPass, dtype: torch.dtype) -> None:
        tensor = (normal(9001) * 3).to(dtype)
        check_row(row_of(interpreted, tensor), tensor)

    @pytest.mark.parametrize("size", [1e160, 1e200, 1.7e308])
    def test_numbers_beyond_fp32(self, interpreted: TritonPass, size: float) -> None:
        spread = normal(20_000).double().clamp(-1, 1) * size
        for tensor in (spread, torch.full((20_000,), size, dtype=torch.float64)):
            found, wanted = row_of(interpreted, tensor), collect(tensor)
            assert wanted is not None
            assert found == pytest.approx(wanted, rel=1e-9, abs=0, nan_ok=True)

    def test_programs_without_work_change_nothing(self, interpreted: TritonPass) -> None:
        """Eight programs and nine tiles: seven of the programs have none in their second turn."""
        tensor = normal(2048 * 8 + 5).abs() + 1
        check_row(row_of(interpreted, tensor), tensor)

    def test_any_layout(self, interpreted: TritonPass) -> None:
        matrix = normal(6000).reshape(60, 100)
        for view in (matrix.t(), matrix[:, ::3], matrix[1:, 2:], matrix[:1].expand(7, 100)):
            check_row(row_of(interpreted, view), view)

    def test_many_tensors_at_once_have_the_records_of_each(self, interpreted: TritonPass) -> None:
        """Of all sizes and formats, and some that lie at odd addresses."""
        kinds = ("normal", "1e20", "subnormal", "NaN", "only NaN", "inf and -inf", "one zero")
        tensors = [TENSORS[kind]()[-2500:] for kind in kinds]
        tensors += [(normal(size, size) * 3 + 1) for size in (1, 2047, 2049, 20_000)]
        tensors += [x.to(dtype) for dtype in (torch.bfloat16, torch.float16) for x in tensors[-2:]]
        tensors += [normal(900).double(), torch.arange(70), normal(600).reshape(20, 30).t()]
        tensors += [normal(50).reshape(5, 10)[:, ::2], torch.full((3000,), 1e20).double()]
        rows = torch.full((len(tensors), ROW_FIELDS), 7.0, dtype=torch.float64)
        interpreted.write_rows(tensors, rows)
        for tensor, row in zip(tensors, rows.tolist(), strict=True):
            check_row(row, tensor)
            alone = row_of(interpreted, tensor)
            assert row == pytest.approx(alone, rel=1e-12, abs=1e-30, nan_ok=True)

    def test_tensors_that_have_changed_are_read_again(self, interpreted: TritonPass) -> None:
        """Those that do not move are found by the table of the time before."""
        tensors = [normal(300, seed) for seed in range(3)]
        rows = torch.empty(3, ROW_FIELDS, dtype=torch.float64)
        for _ in range(2):
            interpreted.write_rows(tensors, rows)
            for tensor, row in zip(tensors, rows.tolist(), strict=True):
                check_row(row, tensor)
                tensor.mul_(2).add_(1)
        interpreted.write_rows(tensors[::-1], rows)
        check_row(rows[0].tolist(), tensors[2])

    def test_a_scale_that_stays_on_the_device(self, interpreted: TritonPass) -> None:
        tensor = normal(5000)
        for format in Format:
            scale = plain.scale_of(tensor.abs().amax(), format, margin=-2)
            found = row_of(interpreted, tensor, scale=scale, format=format)
            same = scale_of(float(tensor.abs().max()), format, margin=-2)
            check_row(found, tensor, scale=same, format=format)
            assert found[11] > 0

    @pytest.mark.parametrize("kind", TENSORS)
    def test_the_same_values_as_on_the_cpu(self, interpreted: TritonPass, kind: str) -> None:
        check_values(interpreted, plain.row_of(TENSORS[kind]()))

    def test_no_elements_have_no_values(self, interpreted: TritonPass) -> None:
        check_values(interpreted, plain.neutral_row(torch.device("cpu")))


@needs_triton
def test_the_kernels_compile_for_a_gpu(tmp_path: Path) -> None:
    """Without one: Triton brings the assembler with it."""
    program = """
import sys
from inspect import signature
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
import triton.language as tl
from dftrace_ai.inspect.numerics import triton_kernels
target = GPUTarget("cuda", 90, 32)
def compiled(kernel, arguments, constants):
    arguments |= dict.fromkeys(constants, "constexpr")
    word = "constexprs" if "constexprs" in signature(ASTSource).parameters else "constants"
    if word == "constants":
        arguments = {name: kind for name, kind in arguments.items() if kind != "constexpr"}
    source = ASTSource(fn=kernel, signature=arguments, **{word: constants})
    return triton.compile(source, target=target, options={"num_warps": 8}).asm["cubin"]
for number in ("fp32", "bf16", "fp16", "fp64"):
    arguments = {"x_ptr": "*" + number, "rows_ptr": "*fp64", "limits_ptr": "*fp32",
                 "under": "fp32", "over": "fp32", "n": "i64", "tiles": "i32"}
    constants = {"BLOCK": 2048, "WIDE": number == "fp64", "LIMITS": 2}
    assert compiled(triton_kernels.partial_rows, arguments, constants)
arguments = {"rows_ptr": "*fp64", "out_ptr": "*fp64", "limits_ptr": "*fp32", "scale": "fp32",
             "programs": "i32"}
assert compiled(triton_kernels.finish_row, arguments, {"PADDED": 1024, "LIMITS": 1})
arguments = {"table_ptr": "*i64", "owners_ptr": "*i64", "rows_ptr": "*fp64"}
constants = {"BLOCK": 2048, "WIDE": False, "ELEMENT": tl.bfloat16, "ALIGNED": True}
assert compiled(triton_kernels.partial_table, arguments, constants)
arguments = {"table_ptr": "*i64", "rows_ptr": "*fp64", "out_ptr": "*fp64"}
assert compiled(triton_kernels.finish_table, arguments, {"PADDED": 1024})
assert compiled(triton_kernels.write_values, {"row_ptr": "*fp64", "out_ptr": "*fp32"}, {})
"""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env |= {
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@needs_gpu
class TestOnGpu:
    @pytest.mark.parametrize("kind", TENSORS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_the_same_record_as_on_the_cpu(self, kind: str, dtype: torch.dtype) -> None:
        tensor = TENSORS[kind]().to(dtype).cuda()
        limits = {"scale": 3.0, "format": Format.E5M2}
        if has_triton():
            triton = TritonPass(tensor.device)
            for _ in range(3):
                # The first launch compiles; later ones take what was compiled.
                check_row(row_of(triton, tensor, **limits), tensor, **limits)
                check_values(triton, plain.row_of(tensor))
        check_row(plain.row_of(tensor, **limits).tolist(), tensor, **limits)
        check_row(list(collect(tensor, **limits) or ()), tensor, **limits)

    def test_nothing_waits_for_the_device(self) -> None:
        device = torch.device("cuda")
        ring: Ring[int] = Ring(device, slots=3)
        tensors = [normal(100_000, seed).cuda() for seed in range(5)]
        ring.add(tensors[0])  # compiles
        ring.end_generation(-1)
        ring.drain()
        with nothing_may_wait():
            for step in range(4):
                for tensor in tensors:
                    scale = plain.scale_of(tensor.abs().amax(), Format.E4M3)
                    ring.add(tensor, scale=scale, format=Format.E4M3)
                    ring.add(tensor, scale=2.0, format=Format.E4M3)
                ring.end_generation(step)
        landed = ring.drain()
        assert [one.tag for one in landed] == [0, 1, 2, 3]
        for one in landed:
            for place, tensor in enumerate(tensors):
                limits = {"scale": 2.0, "format": Format.E4M3}
                check_row(list(one.records[2 * place + 1]), tensor, **limits)

    def test_a_captured_graph_is_left_alone(self) -> None:
        told: list[bool] = []
        ring: Ring[int] = Ring(torch.device("cuda"), on_capture=lambda: told.append(True))
        tensor = normal(1000).cuda()
        ring.add(tensor)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert ring.add(tensor) is None
            assert ring.add(tensor.mul(2)) is None
        assert told == [True]
