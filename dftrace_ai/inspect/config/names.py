"""The names of the grammar: features, namespaces, GEMMs, tensors, and other spellings.

The names of the statistics come from the list of them, `dftrace_ai/inspect/numerics/statistics.py`.
All of them are found in any case. What two sources spell differently is one name here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.numerics.statistics import (
    BLOCK_PREFIXES,
    COLUMNWISE,
    FP8_PREFIXES,
    FP8_STATS,
    NVFP4_STATS,
    PLAIN_FP8_STATS,
    TENSOR_STATS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAMESPACE = "transformer_engine"
NAMESPACE_ALIASES = {"torch": NAMESPACE, "dftrace_ai": NAMESPACE}
# The features that stand directly in a section.
BASE_NAMESPACE = "base"
BASE_FEATURES = ("LogTensorStats",)

GEMM_FEATURES = ("DisableFp8Gemm", "DisableFp8Layer", "PerTensorScaling", "FakeQuant")
LOG_FEATURES = ("LogTensorStats", "LogFp8TensorStats", "LogNvfp4TensorStats")
FEATURES = (*LOG_FEATURES, *GEMM_FEATURES, "DumpTensors")
# Beside these, DisableFP8GEMM and the like are the same name in another case.
FEATURE_ALIASES = {
    "DisableQuantizationGEMM": "DisableFp8Gemm",
    "DisableQuantizationLayer": "DisableFp8Layer",
    "FakeQuantFp8": "FakeQuant",
}

GEMMS = ("fprop", "dgrad", "wgrad")
OPERANDS = {
    "fprop": ("activation", "weight"),
    "dgrad": ("gradient", "weight"),
    "wgrad": ("gradient", "activation"),
}
RESULTS = {"fprop": "output", "dgrad": "dgrad", "wgrad": "wgrad"}
TENSORS = ("activation", "weight", "gradient", "output", "dgrad", "wgrad")

_OF_NVFP4 = {stat.removeprefix("nvfp4_"): stat for stat in NVFP4_STATS}
STATS = {
    "LogTensorStats": TENSOR_STATS,
    "LogFp8TensorStats": FP8_STATS,
    "LogNvfp4TensorStats": NVFP4_STATS,
}
"""The statistics that each logging feature computes."""
STAT_ALIASES = {
    "LogTensorStats": {"amax": "cur_amax"},
    "LogFp8TensorStats": {stat.replace("%", ""): stat for stat in FP8_STATS if "%" in stat},
    "LogNvfp4TensorStats": {
        **_OF_NVFP4,
        "underflows": "nvfp4_underflows%",
        "nvfp4_underflows": "nvfp4_underflows%",
    },
}


# What quant_format may say, and the format it means: MX in front has a scale for each 32 numbers.
FORMATS = {
    "FP8E4M3": "E4M3",
    "FP8E5M2": "E5M2",
    "MXFP8E4M3": "MXE4M3",
    "MXFP8E5M2": "MXE5M2",
    "E4M3": "E4M3",
    "E5M2": "E5M2",
}


def canonical(
    name: Any, known: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """Return the one spelling of a name, or None where it is not known."""
    # What is no text is no name. Aliases are further spellings, each with the name that it stands
    # for.
    if not isinstance(name, str):
        return None
    wanted = name.lower()
    for one in known:
        if one.lower() == wanted:
            return one
    for spelling, one in (aliases or {}).items():
        if spelling.lower() == wanted:
            return one
    return None


def any_case(names: Iterable[str]) -> str:
    """Return a regular expression without flags that finds names in any case, whole."""
    return f"^(?:{'|'.join(''.join(map(_either_case, name)) for name in names)})$"


def _either_case(letter: str) -> str:
    return f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else letter


def listed(names: Iterable[str], last: str = "and") -> str:
    """Return names in a row: ``listed("abc") == "a, b and c"``."""
    *most, final = list(names) or [""]
    return f"{', '.join(most)} {last} {final}" if most else final


STATS_IN_SHORT = {
    "LogTensorStats": listed(TENSOR_STATS),
    "LogFp8TensorStats": f"{listed(PLAIN_FP8_STATS)}, each also with "
    f"{listed((*FP8_PREFIXES, *BLOCK_PREFIXES), 'or')} in front, and with {COLUMNWISE} behind",
    "LogNvfp4TensorStats": listed(_OF_NVFP4),
}
"""The same in words, for messages."""
