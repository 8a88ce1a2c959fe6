"""Weights that ranks share as DTensors, wrappers that come and go, and detaching on ranks."""

from __future__ import annotations

import pytest
import torch
import torch_features
from attached_models import ALL, Values, main_log, section, statistics_of
from rank_processes import on_ranks
from torch import nn

import dftrace_ai.inspect as debug_api

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs gloo",
)

STATISTICS = statistics_of(["l1_norm"], ALL)


def tensor_parallel(rank, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2,))
    quantised = section(
        {
            "FakeQuant": {
                "gemms": ["fprop", "dgrad", "wgrad"],
                "tensors": ["activation", "weight", "gradient"],
                "quant_format": "E4M3",
            }
        }
    )

    def train(config, order):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        values = Values()
        if config is not None:
            place = folder / f"{order}{config is quantised}{rank}"
            debug_api.initialize(config, log_dir=place, statistics_logger=values)
        if config is not None and order == "before":
            debug_api.attach(model)
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        if config is not None and order == "after":
            debug_api.attach(model)
        x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        y = model(x)
        y.square().sum().backward()
        debug_api.step()
        debug_api.end_debug()
        told = [] if config is None else [one for one in main_log(place) if "summand" in one]
        shards = [one.to_local() for one in model.parameters()]
        gradients = [one.grad.to_local().tolist() for one in model.parameters()]
        weight = shards[0].abs().sum().item()
        found = {name: values[name, 0] for name in values.names}
        return [y.tolist(), x.grad.tolist(), *gradients], found, weight, told

    plain = train(None, "never")
    before, after = train(STATISTICS, "before"), train(STATISTICS, "after")
    changed = train(quantised, "after")
    return {
        "same": [plain[0] == before[0], plain[0] == after[0], plain[0] != changed[0]],
        "close": torch.allclose(torch.tensor(plain[0][0]), torch.tensor(changed[0][0]), atol=0.2),
        "alike": before[1] == after[1],
        "found": after[1],
        "weight": after[2],
        "told": [line.split(":")[0] for line in after[3]],
    }


def test_shards_of_tensor_parallel_layers(tmp_path):
    ranks = on_ranks(tensor_parallel, tmp_path)
    for told in ranks:
        assert told["same"] == [True, True, True]
        assert told["close"]
        assert told["alike"]
        assert len(told["found"]) == 2 * len(ALL)
        # Of this rank's shard alone.
        assert told["found"]["model.0_weight_l1_norm"] == pytest.approx(told["weight"], rel=1e-6)
        assert "WARNING - model.2" in told["told"]
    # Both have seen the whole input.
    total = 2 * torch.linspace(-1, 1, 12).abs().sum().item()
    assert ranks[0]["found"]["model.0_activation_l1_norm"] == pytest.approx(total, rel=1e-6)
    output = "model.0_output_l1_norm"
    assert ranks[0]["found"][output] == ranks[1]["found"][output]


def wrapped_while_attached(rank, folder):
    fully_shard = torch_features.fully_shard()
    values = Values()
    debug_api.initialize(STATISTICS, log_dir=folder, statistics_logger=values)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    handle = debug_api.attach(model)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    x = torch.full((2, 4), 1.0 + rank)
    for _ in range(3):
        model(x).sum().backward()
        debug_api.step()
        handle.detach()
        model(x).sum().backward()
        handle = debug_api.attach(model)
    debug_api.end_debug()
    return {f"{name}/{i}": value for (name, i), value in values.found.items()}


def test_a_model_that_was_sharded_while_attached_is_attached_again(tmp_path):
    torch_features.fully_shard()
    for found in on_ranks(wrapped_while_attached, tmp_path):
        assert len(found) == 3 * (2 * len(ALL) - 1 + 4)
        for iteration in range(3):
            assert found[f"model.0_activation_l1_norm/{iteration}"] == [24.0]


def detached_within_a_step(rank, folder):
    values = Values()
    debug_api.initialize(STATISTICS, log_dir=folder, statistics_logger=values)
    model = nn.Linear(4, 2)
    handle = debug_api.attach(model)
    if rank:
        # Here it has run.
        model(torch.ones(2, 4)).sum().backward()
    handle.detach()
    debug_api.step()
    debug_api.step()
    debug_api.end_debug()
    return {f"{name}/{i}": value for (name, i), value in values.found.items()}


def test_ranks_that_detach_in_the_same_step_merge_what_they_saw(tmp_path):
    first, second = on_ranks(detached_within_a_step, tmp_path)
    assert first["model_activation_l1_norm/0"] == second["model_activation_l1_norm/0"] == [8.0]
    assert "model_weight_l1_norm/0" in second
    assert "model_weight_l1_norm/0" not in first
