"""Inspection of a training on a GPU: nothing waits for it, and the numbers are those of the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device.waiting import nothing_may_wait
from inspect_sessions import Values, main_log, section, session, statistics_of
from torch import nn

import dftrace_ai.inspect as debug_api

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]
STEPS = 6


def given() -> dict[str, Any]:
    tensors = ["activation", "weight", "output", "gradient", "dgrad", "wgrad"]
    counts = ["underflows%", "overflows%", "fp8_current_scaling_underflows%", "mse"]
    config = section(
        {
            "LogTensorStats": {"stats": SIX, "tensors": tensors},
            "LogFp8TensorStats": {"stats": counts, "tensors": tensors[:2]},
        }
    )
    config["all"]["LogTensorStats"] = {"enabled": True, "stats": SIX, "tensors": ["hidden"]}
    return config


def train(device: str, folder: Path, fp8: Any) -> Values:
    """Train on a device; from the second step on nothing may wait for it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 8)).to(device)
    batches = [torch.randn(16, 64).to(device) for _ in range(STEPS)]
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        y = model(batch)
        returned = debug_api.log_tensor_stats("net", tensor=y, tensor_name="hidden")
        assert {value.device.type for value in returned.values()} == {device}
        y.square().mean().backward()
        optimizer.step()
        debug_api.step()

    with session(given(), folder) as values:
        debug_api.attach(model, fp8=fp8)
        watch = debug_api.watch_nonfinite(model)
        step(batches[0])
        if device == "cuda":
            torch.cuda.synchronize()
            with nothing_may_wait():
                for batch in batches[1:]:
                    step(batch)
        else:
            for batch in batches[1:]:
                step(batch)
        watch.stop()
    assert not [line for line in main_log(folder) if line.startswith("ERROR")]
    return values


@pytest.mark.parametrize("fp8", [None, {"amax_history_len": 2}, "current"])
def test_a_training_waits_nowhere_and_logs_what_the_cpu_logs(tmp_path: Path, fp8: Any) -> None:
    here = train("cpu", tmp_path / "cpu", fp8)
    there = train("cuda", tmp_path / "cuda", fp8)
    assert list(there.found) == list(here.found)
    for (name, iteration), found in there.found.items():
        if fp8 is not None and iteration:
            # A sum in another order may round to another 8-bit number.
            continue
        close = pytest.approx(here.found[name, iteration], rel=1e-3, abs=1e-4)
        assert found == close, (name, iteration)


def test_a_graph_that_is_captured_is_left_alone_and_that_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with session(statistics_of(["max"], ["output"]), tmp_path) as values, torch.no_grad():
        model = nn.Linear(8, 8).cuda()
        debug_api.attach(model)
        x = torch.ones(4, 8, device="cuda")
        model(x)
        torch.cuda.synchronize()
        debug_api.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
            model(x)
        debug_api.step()
        graph.replay()
        model(x)
        debug_api.step()
    assert values.iterations("model_output_max") == [0, 2]
    assert capfd.readouterr().err.count("CUDA graph") == 1


@pytest.mark.skipif(
    not dist.is_available() or not dist.is_nccl_available(), reason="NCCL is not there"
)
def test_what_ranks_merge_waits_nowhere(tmp_path: Path) -> None:
    config = given()
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        with session(config, tmp_path) as values:
            model = nn.Linear(8, 8).cuda()
            debug_api.attach(model)
            x = torch.randn(100, device="cuda")
            debug_api.log_tensor_stats("net", tensor=x, tensor_name="hidden")
            torch.cuda.synchronize()
            with nothing_may_wait():
                returned = debug_api.log_tensor_stats("net", tensor=x, tensor_name="hidden")
            assert float(returned["max"]) == float(x.max())
            batch = torch.ones(4, 8, device="cuda")
            torch.cuda.synchronize()
            with nothing_may_wait():
                for _ in range(STEPS):
                    model(batch).sum().backward()
                    debug_api.step()
            assert values.iterations("model_activation_max") == list(range(STEPS - 2))
        assert values.iterations("model_activation_max") == list(range(STEPS))
        assert values.found["net_hidden_max", 0] == [float(x.max())] * 2
    finally:
        dist.destroy_process_group()
