"""Sessions for the tests: configs in a line, loggers, the files that are left, and emulations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

import dftrace_ai.inspect as debug_api

LINE = re.compile(r"INFO - (\S+)\s+iteration=(\d+)\s+value=(\S+)\n")
SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]
FMAX = {"E4M3": 448.0, "E5M2": 57344.0}
MANTISSA_BITS = {"E4M3": 3, "E5M2": 2}
SMALLEST_EXPONENT = {"E4M3": -6, "E5M2": -14}
ALL = ["activation", "weight", "output", "gradient", "dgrad", "wgrad"]


def section(features: dict[str, Any] | None = None, **layers: Any) -> dict[str, Any]:
    """A config with one section; without a selection it is for all layers."""
    return {
        "all": {
            "enabled": True,
            "layers": layers or {"layer_types": ["all"]},
            "transformer_engine": {
                name: {"enabled": True, **keys} for name, keys in (features or {}).items()
            },
        }
    }


QUANTISED = section(
    {
        "FakeQuant": {
            "gemms": ["fprop", "dgrad", "wgrad"],
            "tensors": ["activation", "weight", "gradient"],
            "quant_format": "E4M3",
        }
    }
)


def statistics_of(stats: list[str], tensors: list[str], **schedule: Any) -> dict[str, Any]:
    """A config that logs statistics of all layers."""
    return section({"LogTensorStats": {"stats": stats, "tensors": tensors, **schedule}})


def base_config(stats: list[str] | None = None, **keys: Any) -> dict[str, Any]:
    """A config for explicit calls on every layer."""
    feature = {"enabled": True, "stats": stats or SIX, "tensors": ["activation"], "freq": 1}
    layers = {"layer_types": ["all"]}
    return {"stats": {"enabled": True, "layers": layers, "LogTensorStats": feature | keys}}


class Values(debug_api.BaseLogger):
    """A logger, or a writer as TensorBoard's, that keeps what it is given."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], list[float]] = {}
        self.got: list[tuple[str, float, int]] = []

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        self.found.setdefault((name, iteration), []).append(value)
        self.got.append((name, value, iteration))

    add_scalar = log_scalar

    def __getitem__(self, key: tuple[str, int]) -> float:
        (value,) = self.found[key]
        return value

    def __contains__(self, key: object) -> bool:
        return key in self.found

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.found}

    def iterations(self, name: str) -> list[int]:
        return sorted(iteration for one, iteration in self.found if one == name)


@contextmanager
def session(config: Any, folder: Path, **keywords: Any) -> Iterator[Values]:
    """A session that logs into what is yielded; it is ended in any case."""
    values = Values()
    debug_api.initialize(config, log_dir=folder, statistics_logger=values, **keywords)
    try:
        yield values
    finally:
        debug_api.end_debug()


class Scalar(NamedTuple):
    """A line of the statistics."""

    name: str
    iteration: int
    value: str


def main_log(folder: Path, rank: int = 0) -> list[str]:
    """The lines of the main log."""
    path = folder / "nvdlfw_inspect_logs" / f"nvdlfw_inspect_globalrank-{rank}.log"
    return path.read_text().splitlines()


def statistics_path(folder: Path, rank: int = 0) -> Path:
    """Where the statistics of a rank lie."""
    return folder / "nvdlfw_inspect_statistics_logs" / f"nvdlfw_inspect_globalrank-{rank}.log"


def scalars(folder: Path, rank: int = 0) -> list[Scalar]:
    """The statistics, each line as a reader understands it."""
    text = statistics_path(folder, rank).read_text()
    found = LINE.findall(text)
    assert len(found) == text.count("\n")
    return [Scalar(name, int(iteration), value) for name, iteration, value in found]


def exact_statistics(tensor: torch.Tensor) -> dict[str, float]:
    """By definition, in fp64."""
    whole = tensor.detach().double().flatten()
    size = whole.abs()
    found = {
        "min": whole.min(),
        "max": whole.max(),
        "mean": whole.mean(),
        "std": whole.std(),
        "l1_norm": size.sum(),
        "l2_norm": size.square().sum().sqrt(),
        "cur_amax": size.max(),
        "dynamic_range": size.max().log2() - size[size > 0].min().log2() if size.any() else 0.0,
    }
    return {stat: float(value) for stat, value in found.items()}


def on_grid(scaled: torch.Tensor, format_: str) -> torch.Tensor:
    """Clamp and round fp64 numbers to the nearest of the format, to even where two are."""
    clipped = scaled.clamp(-FMAX[format_], FMAX[format_])
    exponent = torch.frexp(clipped).exponent - 1
    exponent = exponent.clamp(min=SMALLEST_EXPONENT[format_])
    unit = torch.ldexp(torch.ones_like(clipped), exponent - MANTISSA_BITS[format_])
    return torch.round(clipped / unit) * unit


def scale(amax: torch.Tensor, format_: str, margin: int = 0) -> torch.Tensor:
    """The scale of an amax, fp32."""
    amax = amax.detach().float()
    if not (torch.isfinite(amax) and amax > 0):
        return torch.tensor(1.0)
    found = torch.tensor(FMAX[format_]) / amax / 2.0**margin
    return found.clamp(max=torch.finfo(torch.float32).max)


def emulated(
    tensor: torch.Tensor, format_: str, margin: int = 0, by: torch.Tensor | None = None
) -> torch.Tensor:
    """A tensor as it comes back from FP8, by a scale or by that of the tensor itself."""
    tensor = tensor.detach()
    by = scale(tensor.abs().max(), format_, margin) if by is None else by
    # Products of fp32 are rounded to fp32, the grid is that of exact arithmetic.
    scaled = (tensor.float() * by).double()
    return (on_grid(scaled, format_).float() * (1.0 / by)).to(tensor.dtype)


HYBRID = {"activation": "E4M3", "weight": "E4M3", "gradient": "E5M2"}


class Delayed:
    """Delayed scaling as the recipe describes it, kept by hand."""

    def __init__(self, length=1024, algorithm="max", margin=0):
        self.length, self.algorithm, self.margin = length, algorithm, margin
        self.seen = {name: [] for name in HYBRID}
        self.scales = {name: torch.tensor(1.0) for name in HYBRID}

    def change(self, gemm, name, tensor):
        return emulated(tensor, HYBRID[name], by=self.scales[name])

    def step(self, **tensors):
        for name, found in tensors.items():
            history = self.seen[name]
            history.append(max(float(one.detach().abs().max()) for one in found))
            del history[: -self.length]
            amax = max(history) if self.algorithm == "max" else history[-1]
            if 0 < amax < math.inf:
                self.scales[name] = scale(torch.tensor(amax), HYBRID[name], self.margin)
