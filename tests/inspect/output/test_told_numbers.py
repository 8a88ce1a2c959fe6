"""The numbers that the trace tells of a tensor: those that are returned, with the digits of fp32."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from awkward_tensors import TENSORS, random_bits
from conftest import Traced
from inspect_sessions import base_config

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.numerics.statistics import TENSOR_STATS


def shown(value: float) -> float:
    """A number of fp32 with the nine digits that tell it from all others."""
    return float(f"{value:.9g}")


def test_events_and_counters_have_the_values_that_are_returned(
    tmp_path: Path, traced: Traced
) -> None:
    tensors = {f"kind {n}": make()[:3000] for n, make in enumerate(TENSORS.values())}
    tensors |= {f"bits {n}": random_bits(40 + n, n) for n in range(30)}
    tensors |= {f"scaled {n}": torch.randn(50) * 10.0**n for n in range(-40, 38)}
    with traced() as rec:
        debug_api.initialize(base_config(list(TENSOR_STATS)), log_dir=tmp_path)
        found = {
            layer: {
                stat: float(value)
                for stat, value in debug_api.log_tensor_stats(layer, x, "activation").items()
            }
            for layer, x in tensors.items()
        }
        debug_api.end_debug()
    for layer, values in found.items():
        assert tuple(values) == TENSOR_STATS
        told = rec.trace.one(f"{layer}:activation", "tensor_stats").user
        counts = {"n": tensors[layer].numel(), "n_nan": int(tensors[layer].isnan().sum())}
        about = {"iteration": 0, "rank": 0, "feature": "LogTensorStats"}
        wanted: dict[str, object] = dict(about)
        for stat, value in values.items():
            wanted[stat] = shown(value) if math.isfinite(value) else None
            if not math.isfinite(value):
                wanted[f"{stat}_str"] = str(value)
        assert list(told.items())[: len(wanted) + 2] == [*wanted.items(), *counts.items()]
        finite = {stat: shown(value) for stat, value in values.items() if math.isfinite(value)}
        plotted = [e.args for e in rec.trace.of("C") if e.name == f"{layer}:activation"]
        assert plotted == ([finite] if finite else [])


def test_values_that_are_returned_are_tensors_of_their_own(tmp_path: Path) -> None:
    debug_api.initialize(base_config(["min", "max"]), log_dir=tmp_path)
    found = debug_api.log_tensor_stats("fc", torch.tensor([1.0, 2.0]), "activation")
    debug_api.end_debug()
    found["min"] += 5
    assert {stat: value.item() for stat, value in found.items()} == {"min": 6.0, "max": 2.0}
    for value in found.values():
        assert (value.dtype, value.shape, value.device.type) == (torch.float32, (), "cpu")
        assert value.untyped_storage().nbytes() == 4
        assert not value.requires_grad
