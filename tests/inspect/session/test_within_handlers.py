"""Handlers of signals that ask for statistics wherever a training is in its own calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from inspect_sessions import base_config, exact_statistics, main_log, scalars
from interruption import Interruption
from late_rings import through_rings

import dftrace_ai.inspect as debug_api

PARTS = Path(debug_api.__file__).parent
X = torch.arange(6.0)


def modules(*parts: str) -> set[Path]:
    """The sources of parts of the inspection."""
    return {path for part in parts for path in (PARTS / part).glob("*.py")}


def log(layer: str) -> None:
    debug_api.log_tensor_stats(layer, tensor=X, tensor_name="activation")


def test_what_a_handler_logs_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """Nothing waits for itself, and each call has its lines."""
    debug_api.initialize(base_config(["mean"]), log_dir=tmp_path)
    parts = modules("output", "session", "collecting")
    places = handled = 0
    while True:
        places += 1
        with Interruption(places, lambda: log("handler"), parts) as interruption:
            log("training")
        handled += interruption.came
        debug_api.step()
        if not interruption.came:
            break
    debug_api.end_debug()
    assert handled > 10
    mean = f"{exact_statistics(X)['mean']:.4f}"
    for layer, count in (("training", places), ("handler", handled)):
        own = [line for line in scalars(tmp_path) if line.name == f"{layer}_activation_mean"]
        assert [(line.iteration, line.value) for line in own] == [
            (place, mean) for place in range(count)
        ]


@pytest.mark.parametrize("call", ["log", "step"])
def test_what_a_handler_logs_while_records_of_a_device_are_made(call: str, tmp_path: Path) -> None:
    """What cannot be made then is left out, and told; the training's own is all there."""
    debug_api.initialize(base_config(["max"]), log_dir=tmp_path)
    copies = through_rings(late_by=1)
    parts = modules("collecting", "numerics")
    places = 0
    while True:
        places += 1
        handler = debug_api.step if call == "step" else lambda: log("handler")
        with Interruption(places, handler, parts) as interruption:
            log("training")
        debug_api.step()
        copies.now += 1
        if not interruption.came:
            break
    debug_api.end_debug()
    own = [line.value for line in scalars(tmp_path) if line.name == "training_activation_max"]
    assert own == ["5.0000"] * places
    told = [line for line in main_log(tmp_path) if "handler of a signal" in line]
    assert len(told) == (call == "log")
