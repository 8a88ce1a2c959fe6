"""A GPU's driver that runs the native kernels on the CPU: `native/tests/gpu/cuda_stand_in.cpp`."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch

from dftrace_ai.inspect.numerics.writers import CudaPass

NATIVE = Path(__file__).parents[2] / "native"


class State(ctypes.Structure):
    """What the stand-in is told to do, and counts."""

    _fields_ = [
        (name, ctypes.c_int)
        for name in (
            *("launch_error", "load_error", "capturing", "launches", "pushed"),
            *("no_context", "idle", "context"),
        )
    ]


class StandIn:
    """The library, and what makes records by it of tensors on the CPU."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        library = ctypes.CDLL(self.path)
        library.stand_in_state.restype = ctypes.POINTER(State)
        self.state = library.stand_in_state().contents

    def new_pass(self) -> CudaPass:
        return CudaPass(torch.device("cpu"), self.path)


@cache
def stand_in() -> StandIn:
    """The stand-in, compiled once in a process."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda_stand_in.so"
        # As the GPU's compiler is told: a product and a sum are rounded each.
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-ffp-contract=off"]
        roots = [f"-I{NATIVE / 'src'}", f"-I{NATIVE / 'include'}"]
        source = NATIVE / "tests" / "gpu" / "cuda_stand_in.cpp"
        subprocess.run([compiler, *options, *roots, source, "-o", library], check=True)
        return StandIn(library)
