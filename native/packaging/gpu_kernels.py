"""The kernels for GPUs as the driver reads them: python native/packaging/gpu_kernels.py [--check].

Makes `native/src/tensor/cuda/kernels.ptx` of `kernels.cu` beside it, which is committed with it. So
nobody who builds the package needs a compiler for GPUs, and all have the same kernels. It takes
NVIDIA's compiler as a library, pinned, since another one writes other text: `pip install
nvidia-cuda-nvrtc-cu12==12.1.105` (23 MB). That version compiles for compute capability 7.0, and
drivers from 530 on read what it writes.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Final

PACKAGE: Final = "nvidia-cuda-nvrtc-cu12"
VERSION: Final = "12.1.105"
NATIVE: Final = Path(__file__).parents[1]
SOURCE: Final = NATIVE / "src" / "tensor" / "cuda" / "kernels.cu"
TEXT: Final = SOURCE.with_suffix(".ptx")
MOST_ERRORS: Final = 4000
"""Letters of the compiler's, where it refuses."""

OPTIONS: Final = (
    "--gpu-architecture=compute_70",
    "--std=c++20",
    # As for the host: a product and a sum are rounded each, unless `fma` says otherwise.
    "--fmad=false",
    "--device-as-default-execution-space",
    f"-I{NATIVE / 'src'}",
    f"-I{NATIVE / 'include'}",
)

# What the sources use of the standard library, which this compiler comes without.
HEADERS: Final = {
    "algorithm": """
template <class T> constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T> constexpr T max(T a, T b) { return a < b ? b : a; }
""",
    "cmath": """
using ::fabs; using ::fma; using ::fmax; using ::fmin; using ::isinf; using ::isnan; using ::ldexp;
using ::log2; using ::nextafter; using ::sqrt;
""",
    "cstddef": "using size_t = decltype(sizeof(0));",
    "limits": """
template <class T> struct numeric_limits;
template <> struct numeric_limits<float> {
  static constexpr float max() { return 0x1.FFFFFEp127f; }
  static constexpr float quiet_NaN() { return 0.0f / 0.0f; }
};
template <> struct numeric_limits<double> {
  static constexpr double infinity() { return 1.0 / 0.0; }
  static constexpr double quiet_NaN() { return 0.0 / 0.0; }
};
""",
}

READ: Final = (
    "include/dftrace/tensor/fp8.hpp",
    "include/dftrace/tensor/record.hpp",
    "include/dftrace/tensor/statistics.hpp",
    "src/tensor/cuda/kernels.cu",
    "src/tensor/cuda/order.hpp",
    "src/tensor/default_arithmetic.hpp",
    "src/tensor/fp8.cpp",
    "src/tensor/statistics.cpp",
)
"""What the text is made of, besides this program."""


def first_line() -> str:
    """Return how the text of the present sources begins."""
    digest = hashlib.sha256()
    for path in (*(NATIVE / name for name in READ), Path(__file__)):
        digest.update(path.read_bytes())
    return (
        f"// Made by native/packaging/gpu_kernels.py of sources with SHA-256 {digest.hexdigest()}\n"
    )


def compiler() -> ctypes.CDLL | None:
    """Return the compiler, None where it is not installed."""
    try:
        found = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    libraries = [file for file in found.files or () if file.name.startswith("libnvrtc")]
    if found.version != VERSION or not libraries:
        return None
    # What it loads by name is there already when it does.
    for file in sorted(libraries, key=lambda file: "builtins" not in file.name):
        library = ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
    return library


def compiled(nvrtc: ctypes.CDLL) -> str:
    """Return the text of the present sources; SystemExit with the errors if they have any."""
    names = (ctypes.c_char_p * len(HEADERS))(*(name.encode() for name in HEADERS))
    texts = (ctypes.c_char_p * len(HEADERS))(
        *(f"#pragma once\nnamespace std {{ {text} }}\n".encode() for text in HEADERS.values())
    )
    program = ctypes.c_void_p()
    source = SOURCE.read_bytes()
    nvrtc.nvrtcCreateProgram(
        *(ctypes.byref(program), source, b"kernels.cu", len(HEADERS), texts, names)
    )
    options = (ctypes.c_char_p * len(OPTIONS))(*(option.encode() for option in OPTIONS))
    failed = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    if failed:
        raise SystemExit(_told(nvrtc, program, "ProgramLog")[:MOST_ERRORS])
    lines = _told(nvrtc, program, "PTX").splitlines()
    kept = [line for line in lines if line.strip() and not line.startswith("//")]
    return first_line() + "\n".join(kept) + "\n"


def _told(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.value.decode()


def main(arguments: list[str]) -> str:
    """Make the text, or check it; return what is wrong, else ""."""
    checks = arguments == ["--check"]
    nvrtc = compiler()
    if nvrtc is None and not checks:
        return f"compiled by {PACKAGE}=={VERSION}, which is not installed"
    if not checks and nvrtc is not None:
        TEXT.write_text(compiled(nvrtc), encoding="utf-8")
        return ""
    there = TEXT.read_text(encoding="utf-8")
    same = there.startswith(first_line()) if nvrtc is None else there == compiled(nvrtc)
    return "" if same else f"{TEXT.name} is not of its sources: run native/packaging/gpu_kernels.py"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or None)
