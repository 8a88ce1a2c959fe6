"""Forwards that are not run in the FP8 that a config counts on: they run as if it asked nothing."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from contextlib import nullcontext

import pytest
import torch
from inspect_sessions import main_log, section, session
from late_rings import through_rings
from torch import nn
from torch.utils.checkpoint import checkpoint

import dftrace_ai.inspect as debug_api

GEMMS = ["fprop", "dgrad", "wgrad"]
SCALING = {"PerTensorScaling": {"gemms": GEMMS, "tensors": ["activation", "weight", "gradient"]}}
WHAT_IF = {"LogFp8TensorStats": {"stats": ["underflows%"], "tensors": ["activation", "gradient"]}}
DELAYED = {
    "LogFp8TensorStats": {
        "stats": ["fp8_delayed_scaling_underflows%", "fp8_delayed_scaling_mse"],
        "tensors": ["activation", "weight", "gradient"],
    }
}
BOTH = {
    "LogFp8TensorStats": {
        "stats": [*WHAT_IF["LogFp8TensorStats"]["stats"], *DELAYED["LogFp8TensorStats"]["stats"]],
        "tensors": ["activation", "weight", "gradient"],
    },
    "LogTensorStats": {"stats": ["max"], "tensors": ["activation", "wgrad"]},
}
OFF = {"DisableFp8Gemm": {"gemms": ["fprop"]}}
FEATURES = [SCALING, WHAT_IF, DELAYED, SCALING | BOTH, DELAYED | OFF, {"DisableFp8Layer": {}}]


def outside(model, x):
    """A forward and backward of the training."""
    y = model(x)
    y.sum().backward()
    return y


def evaluated(model, x, mode=torch.no_grad):
    """A forward of an evaluation."""
    model.eval()
    try:
        with mode():
            return model(x)
    finally:
        model.train()


def inside(block, run=outside):
    """The same in a block."""

    def within(model, x):
        with block():
            return run(model, x)

    return within


WAYS = {
    "training": outside,
    "eval": lambda model, x: evaluated(model, x, nullcontext),
    "no_grad": evaluated,
    "inference": lambda model, x: evaluated(model, x, torch.inference_mode),
    "disabled": inside(lambda: debug_api.fp8_autocast(enabled=False)),
    "disabled within": lambda model, x: inside(debug_api.fp8_autocast, WAYS["disabled"])(model, x),
    "checkpoint": lambda model, x: outside(
        lambda x: checkpoint(model, x, use_reentrant=False), x.requires_grad_()
    ),
    "reentrant": lambda model, x: outside(
        lambda x: checkpoint(model, x, use_reentrant=True), x.requires_grad_()
    ),
    "other recipe": inside(lambda: debug_api.fp8_autocast(recipe="current")),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 4))


class Attending(nn.Module):
    """Layers of both kinds."""

    def __init__(self):
        super().__init__()
        self.layers = network()

    def forward(self, x):
        first, attention, last = self.layers
        y = first(x)
        return last(attention(y, y, y, need_weights=False)[0])


@pytest.mark.parametrize(
    ("features", "compiled"),
    [*((one, False) for one in FEATURES), (SCALING | BOTH, True)],
    ids=lambda one: "+".join(one) if isinstance(one, dict) else f"compiled: {one}",
)
def test_any_forward_outside_of_the_recipe_goes_on_and_is_told_once(features, compiled, tmp_path):
    torch._dynamo.reset()
    x = torch.linspace(-3, 3, 16).reshape(2, 8)
    plain = Attending()
    with session(section(features), tmp_path):
        model = Attending()
        debug_api.attach(model)
        run = torch.compile(model, backend="aot_eager") if compiled else model
        for way, go in WAYS.items():
            if compiled and "reentrant" in way:
                continue  # torch compiles none
            for _ in range(2):
                with debug_api.fp8_autocast():
                    outside(run, x.clone())
                found = go(run, x.clone())
                if way != "other recipe":
                    expected = evaluated(plain, x)
                    assert torch.allclose(found, expected, atol=1e-6), way
                debug_api.step()
    lines = main_log(tmp_path)
    assert not [line for line in lines if line.startswith(("ERROR", "WARNING"))]
    idle = Counter(line for line in lines if line.endswith("which is told once."))
    assert set(idle.values()) <= {1}
    for feature, needs in (("PerTensorScaling", "without FP8"), ("Fp8TensorStats", "delayed sca")):
        asked = features is not WHAT_IF and any(feature in one for one in features)
        layers = {line.split(": ")[0] for line in idle if feature in line and needs in line}
        assert len(layers) == (4 if asked else 0), feature


@pytest.mark.parametrize("late", [False, True], ids=["host", "device"])
def test_statistics_of_delayed_scaling_are_those_of_forwards_under_it(late, tmp_path):
    with session(section(BOTH), tmp_path) as values:
        if late:
            through_rings(0)
        model = nn.Linear(8, 8)
        debug_api.attach(model)
        for step, ways in enumerate(itertools.product([False, True], repeat=2)):
            for under in ways:
                with debug_api.fp8_autocast() if under else nullcontext():
                    outside(model, torch.ones(2, 8))
            debug_api.step()
    for step, ways in enumerate(itertools.product([False, True], repeat=2)):
        assert (("model_weight_fp8_delayed_scaling_mse", step) in values) == any(ways)
        assert ("model_weight_underflows%", step) in values


def test_a_section_that_never_had_its_recipe_is_told_at_the_end(tmp_path):
    for features, needs in ((SCALING, "fp8_autocast"), (DELAYED, "recipe 'delayed'")):
        with session(section(features), tmp_path):
            model = nn.Linear(8, 8)
            debug_api.attach(model)
            outside(model, torch.ones(2, 8))
            debug_api.step()
        (line,) = [line for line in main_log(tmp_path) if "produced nothing" in line]
        assert needs in line


def plans(folder):
    return [line.split(" - ")[-1] for line in main_log(folder) if ", gemm " in line]


def transformer_layer():
    """The layers of the document's example, by their names."""
    names = {"self_attention": ("layernorm_qkv", "proj"), "layernorm_mlp": ("fc1", "fc2")}
    parts = {
        part: nn.Sequential(OrderedDict((name, nn.Linear(16, 16)) for name in layers))
        for part, layers in names.items()
    }
    return nn.Sequential(OrderedDict(parts))


def test_the_plan_is_told_by_what_forwards_run_in_and_again_where_that_is_otherwise(
    traced, tmp_path
):
    config = {
        "fc1_fprop_to_fp8": {
            "enabled": True,
            "layers": {"layer_types": ["fc1", "fc2"]},
            "transformer_engine": {"DisableFP8GEMM": {"enabled": True, "gemms": ["fprop"]}},
        }
    }
    with traced() as recording, session(config, tmp_path):
        model = transformer_layer()
        debug_api.attach(model)
        assert not plans(tmp_path)
        for _ in range(3):
            with debug_api.fp8_autocast(enabled=True):
                y = model(torch.ones(4, 16))
            y.square().mean().backward()
            debug_api.step()
        assert Counter(plans(tmp_path)) == {"FP8 quantization": 20, "High precision": 4}
        assert all(
            ("High precision" in line) == ("fc" in line and "fprop" in line)
            for line in main_log(tmp_path)
            if ", gemm " in line
        )
        for _ in range(2):
            evaluated(model, torch.ones(4, 16))
            with debug_api.fp8_autocast(recipe="current"):
                model(torch.ones(4, 16))
    assert Counter(plans(tmp_path)) == {"FP8 quantization": 20, "High precision": 28}
    told = [one for one in recording.trace.events if one.cat == "inspect"]
    told = [one for one in told if "activation/wgrad" in one.args]
    assert {one.name: one.args.get("section") for one in told} == {
        "model.self_attention.layernorm_qkv": None,
        "model.self_attention.proj": None,
        "model.layernorm_mlp.fc1": "fc1_fprop_to_fp8",
        "model.layernorm_mlp.fc2": "fc1_fprop_to_fp8",
    }
    assert [one.args["activation/wgrad"] for one in told] == [
        *["FP8 quantization"] * 4,
        *["High precision"] * 4,
    ]


@pytest.mark.parametrize("end", [debug_api.step, lambda: None], ids=["step", "end"])
@pytest.mark.parametrize("runs", [True, False])
def test_without_fp8_the_plan_is_told_at_the_end_of_the_first_step(end, runs, tmp_path):
    with session(section(OFF), tmp_path):
        model = nn.Linear(8, 8)
        debug_api.attach(model)
        if runs:
            outside(model, torch.ones(2, 8))
        end()
    assert plans(tmp_path) == ["High precision"] * 6


def test_what_features_of_ones_own_change_belongs_to_the_plan(tmp_path):
    @debug_api.register_feature("HalfOff")
    class HalfOff:
        def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
            return gemm != "wgrad"

        def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
            return (gemm, tensor_name) == ("dgrad", "weight")

        def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration, **kw):
            return tensor

    with session(section({"HalfOff": {}}), tmp_path):
        model = nn.Linear(8, 8)
        debug_api.attach(model, fp8=True)
        for _ in range(3):
            outside(model, torch.ones(2, 8))
            debug_api.step()
    fp8, off = "FP8 quantization", "High precision"
    assert plans(tmp_path) == [fp8, off, fp8, "modify_tensor()", fp8, off]
