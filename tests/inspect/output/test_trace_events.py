"""What tensor inspection tells the trace: numbers with the digits of fp32, where they were seen."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from awkward_tensors import TENSORS, random_bits
from conftest import Traced
from inspect_sessions import ALL, Values, base_config, section, session
from late_rings import through_rings
from torch import nn

import dftrace_ai
import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.numerics.statistics import TENSOR_STATS

CONFIG = section(
    {"LogTensorStats": {"stats": ["max", "min"], "tensors": ALL}}, layer_types=["model"]
) | {
    "given": {
        "enabled": True,
        "layers": {"layer_types": ["hidden"]},
        "LogTensorStats": {"enabled": True, "stats": ["max"], "tensors": ["state"]},
    }
}
BACKWARD = {"gradient", "dgrad", "wgrad"}


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_events_lie_in_the_span_in_which_the_tensor_was_seen(late, traced, tmp_path):
    compute = dftrace_ai.ai.compute
    with traced() as recording, session(CONFIG, tmp_path):
        copies = through_rings(2) if late else None
        model = nn.Linear(3, 2)
        debug_api.attach(model)
        for step in range(4):
            x = torch.full((1, 3), float("inf") if step == 2 else 1.0, requires_grad=True)
            with dftrace_ai.ai.pipeline.train:
                with compute.forward:
                    y = model(x)
                    debug_api.log_tensor_stats("hidden", tensor=x, tensor_name="state")
                with compute.backward:
                    y.sum().backward()
            if copies is not None:
                copies.now += 1
            debug_api.step()
        # In no span of its own.
        model(torch.ones(1, 3, requires_grad=True)).sum().backward()
        debug_api.step()
    events = recording.trace.events
    spans = {name: [one for one in events if one.name == name] for name in ("forward", "backward")}
    told = [one for one in events if one.cat in ("tensor_stats", "nonfinite")]
    assert len(told) > 5 * len(ALL)
    outside = 0
    for one in told:
        tensor = one.name.partition(":")[2]
        of_kind = spans["backward" if tensor in BACKWARD else "forward"]
        around = [span for span in of_kind if span.ts_ns <= one.ts_ns <= span.end_ns]
        if around:
            assert (one.p_idx, one.level) == (around[0].id, around[0].level + 1), one
        else:
            assert (one.p_idx, one.level) == (0, 1), one
            outside += 1
    assert outside == len(ALL)
    assert {one.cat for one in told} == {"tensor_stats", "nonfinite"}


def test_what_is_told_in_another_run_lies_in_no_span_of_it(traced, tmp_path):
    config = section({"LogTensorStats": {"stats": ["max"], "tensors": ["activation"]}})
    values = Values()
    debug_api.initialize(config, log_dir=tmp_path, statistics_logger=values)
    try:
        model = nn.Linear(3, 2)
        debug_api.attach(model)
        with traced(), dftrace_ai.ai.compute.forward:
            model(torch.ones(1, 3))
        with traced() as recording, dftrace_ai.ai.compute.backward:
            debug_api.step()
    finally:
        debug_api.end_debug()
    (seen,) = [one for one in recording.trace.events if one.cat == "tensor_stats"]
    assert (seen.p_idx, seen.level) == (0, 1)


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
