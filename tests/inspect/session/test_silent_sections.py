"""A section of the config that produces nothing is told once, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_sessions import main_log, session
from rank_processes import on_ranks
from torch import nn

import dftrace_ai.inspect as debug_api

STATISTICS = {"LogTensorStats": {"stats": ["max"], "tensors": ["activation"], "freq": 1}}
LATER = {"LogTensorStats": STATISTICS["LogTensorStats"] | {"freq": 10, "start_step": 5}}
ROUNDED = {"FakeQuant": {"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "E4M3"}}


def section(features: dict[str, Any] | None = None, base: Any = None, **layers: Any) -> Any:
    found: dict[str, Any] = {"enabled": True, "layers": layers}
    if features:
        found["transformer_engine"] = {
            name: {"enabled": True, **keys} for name, keys in features.items()
        }
    if base is not None:
        found["LogTensorStats"] = {"enabled": True, "stats": ["max"], "freq": 1, **base}
    return found


class Network(nn.Module):
    """`fc1` is gone past, `blocks` are run."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 3)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x):
        x = nn.functional.linear(x, self.fc1.weight)
        for block in self.blocks:
            x = block(x)
        return x


def trained(steps=2, *, backward=True, step=debug_api.step, **keywords):
    model = Network()
    debug_api.attach(model, **keywords)
    for _ in range(steps):
        y = model(torch.ones(1, 3)).sum()
        if backward:
            y.backward()
        step()


def told(folder):
    return [line for line in main_log(folder) if "produced nothing" in line or "never call" in line]


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        (section(STATISTICS, layer_types=["fcc1"]), ["none of the 3 layers", "near are fc1"]),
        (section(STATISTICS, layer_types=["Linaer"]), ["near are Linear"]),
        (section(ROUNDED, layer_name_regex_pattern="model.fc$"), ["near are model.fc1"]),
        (section(STATISTICS, layer_numbers=[7]), ["of number 7", "go from 0 to 1"]),
        (section(STATISTICS, layer_numbers=[7], layer_types=["fc1"]), ["near are fc1"]),
        (section(STATISTICS, layer_types=["fc1"]), ["(model.fc1) never ran", "F.linear"]),
        (section(ROUNDED, layer_types=["fc1"]), ["(model.fc1) never ran"]),
        (section(LATER, layer_types=["blocks"]), ["not due", "from 0 to 2", "would be 10"]),
        (
            section(
                {"LogTensorStats": STATISTICS["LogTensorStats"] | {"start_end_list": [[9, 9]]}},
                layer_types=["blocks"],
            ),
            ["not due", "will not be any more"],
        ),
        (
            section(base={"tensors": ["hidden"]}, layer_types=["blocks"]),
            ["log_tensor_stats", "under transformer_engine"],
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_once_by_name(given, reasons, tmp_path):
    right = section(STATISTICS, exact_layer_names=["model.blocks.1"])
    config = {"silent": given} if "blocks" in str(given) else {"silent": given, "right": right}
    with session(config, tmp_path):
        trained()
    (line,) = told(tmp_path)
    assert line.startswith("WARNING - Section silent produced nothing: ")
    for reason in reasons:
        assert reason in line


def test_names_in_full_are_told_of_when_they_are_attached(tmp_path):
    given = section(STATISTICS, exact_layer_names=["model.fcl", "model.block.0"])
    with session({"silent": given}, tmp_path):
        trained()
    warnings = [line for line in main_log(tmp_path) if line.startswith("WARNING")]
    assert len(warnings) == 2
    assert all("no layer is called model." in line for line in warnings)
    assert "near are model.fc1" in warnings[0]
    assert "model.blocks.0" in warnings[1]


def test_a_backward_an_evaluation_and_an_attachment_that_are_missing(tmp_path):
    gradients = {"LogTensorStats": STATISTICS["LogTensorStats"] | {"tensors": ["gradient"]}}
    with session({"silent": section(gradients, layer_types=["blocks"])}, tmp_path / "backward"):
        trained(backward=False)
    (line,) = told(tmp_path / "backward")
    assert "none of gradient was seen" in line
    with session({"silent": section(STATISTICS, layer_types=["blocks"])}, tmp_path / "eval"):
        model = Network().eval()
        debug_api.attach(model)
        model(torch.ones(1, 3))
        debug_api.step()
    (line,) = told(tmp_path / "eval")
    assert "eval mode" in line
    with session({"silent": section(STATISTICS, layer_types=["blocks"])}, tmp_path / "nothing"):
        debug_api.step()
    (line,) = told(tmp_path / "nothing")
    assert "no model was attached" in line


def test_steps_that_are_not_told(tmp_path):
    config = {"silent": section(LATER, layer_types=["blocks"])}
    with session(config, tmp_path / "due later"):
        trained(step=lambda: None)
    (line,) = told(tmp_path / "due later")
    assert "step() was never called" in line
    with session({"all": section(STATISTICS, layer_types=["blocks"])}, tmp_path / "due") as values:
        trained(3, step=lambda: None)
    assert values.iterations("model.blocks.0_activation_max") == [0]
    (line,) = told(tmp_path / "due")
    assert "up to 3 forwards" in line


def test_explicit_calls_for_other_tensors_and_in_other_iterations(tmp_path):
    tensors, later = {"tensors": ["hidden"]}, {"tensors": ["hidden"], "start_step": 8}
    for name, keys, reason in (("tensors", tensors, "state"), ("later", later, "would be 8")):
        with session({"silent": section(base=keys, layer_types=["decoder"])}, tmp_path / name):
            given = "state" if name == "tensors" else "hidden"
            debug_api.log_tensor_stats("decoder.1", tensor=torch.ones(2), tensor_name=given)
            debug_api.step()
        (line,) = told(tmp_path / name)
        assert reason in line


def test_sections_that_do_something_are_not_told_of(tmp_path):
    config = {
        "observed": section(STATISTICS, exact_layer_names=["model.blocks.0"]),
        "rounded": section(ROUNDED, exact_layer_names=["model.blocks.1"]),
        "given": section(base={"tensors": ["hidden"]}, layer_types=["decoder"]),
        "of another model": section(STATISTICS, layer_types=["other"]),
        "disabled": {"enabled": False},
    }
    with session(config, tmp_path / "all"):
        trained(1)
        debug_api.log_tensor_stats("decoder.1", tensor=torch.ones(2), tensor_name="hidden")
        debug_api.step()
        other = nn.Linear(2, 2)
        debug_api.attach(other, name="other").detach()
        handle = debug_api.attach(other, name="other")
        other(torch.ones(1, 2))
        handle.detach()
    assert not told(tmp_path / "all")
    # What takes layers out of FP8 has nothing to do where FP8 is off.
    off = {"off": section({"DisableFp8Layer": {}}, layer_types=["blocks"])}
    for fp8 in (None, "current"):
        with session(off, tmp_path / str(fp8)):
            trained(fp8=fp8)
        assert not told(tmp_path / str(fp8))


def of_a_stage(rank: int, folder: Path) -> list[list[str]]:
    found = []
    for features in (STATISTICS, ROUNDED):
        config = {
            "first": section(features, layer_types=["first"]),
            "second": section(features, layer_types=["second"]),
            "typo": section(features, layer_types=["secnod"]),
        }
        place = folder / next(iter(features))
        with session(config, place):
            model = nn.ModuleDict({("first", "second")[rank]: nn.Linear(2, 2)})
            debug_api.attach(model)
            for layer in model.values():
                layer(torch.ones(1, 2))
            debug_api.step()
        found.append([line for line in main_log(place, rank) if "Section" in line])
    return found


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs gloo",
)
def test_a_stage_of_a_pipeline_does_not_warn_of_the_layers_of_another_one(tmp_path):
    (first, first_alone), (second, second_alone) = on_ranks(of_a_stage, tmp_path)
    assert [line.split(":")[0] for line in first] == [
        "INFO - Section second has its layers on other ranks",
        "WARNING - Section typo produced nothing",
    ]
    assert [line.split(":")[0] for line in second] == [
        "INFO - Section first has its layers on other ranks",
        "INFO - Section typo produced nothing",
    ]
    # Without statistics ranks exchange nothing, and know nothing of each other.
    assert [line.split(" - ")[0] for line in first_alone] == ["WARNING", "WARNING"]
    assert [line.split(" - ")[0] for line in second_alone] == ["INFO", "INFO"]
    assert all(line.endswith("may have such layers.") for line in first_alone + second_alone)
