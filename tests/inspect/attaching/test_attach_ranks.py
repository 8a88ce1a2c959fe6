"""Several ranks: whose statistics are merged, who logs them, and weights that ranks share."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch_features
from inspect_sessions import (
    ALL,
    QUANTISED,
    Values,
    emulated,
    exact_statistics,
    main_log,
    scale,
    session,
    statistics_of,
)
from rank_processes import on_ranks
from torch import nn

import dftrace_ai.inspect as debug_api

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs gloo",
)


def by_name(values):
    return {f"{name}/{iteration}": found for (name, iteration), found in values.found.items()}


def assert_is(values, name, parts):
    exact = exact_statistics(torch.cat([torch.tensor(part).reshape(-1) for part in parts]))
    for stat in ("mean", "std", "max"):
        (found,) = values[f"{name}_{stat}/0"]
        assert found == pytest.approx(exact[stat], rel=1e-5, abs=1e-6), (name, stat)


def merged_over_ranks(rank, folder):
    config = statistics_of(["mean", "std", "max"], ["activation", "weight", "gradient"])
    own = [dist.new_group([one]) for one in range(2)][rank]
    both = dist.new_group([0, 1])
    told = {}

    def case(name, prepare=lambda: None, **keywords):
        torch.manual_seed(rank)
        model = nn.Linear(3, 2)
        # Shards of unequal shapes, far from each other.
        x = torch.randn(4 + 3 * rank, 3) + 10 * rank
        with session(config, folder / name) as values:
            prepare()
            debug_api.attach(model, **keywords)
            model(x).square().sum().backward()
            debug_api.step()
        told[name] = {"values": by_name(values), "x": x.tolist(), "weight": model.weight.tolist()}

    case("world")
    case("own", lambda: debug_api.set_tensor_reduction_group(own))
    case("tp", tp_group=both)
    case("tp off", lambda: debug_api.set_weight_tensor_tp_group_reduce(False), tp_group=both)
    return told


def test_who_logs_what(tmp_path):
    ranks = on_ranks(merged_over_ranks, tmp_path)
    for case in ("world", "own", "tp", "tp off"):
        xs = [each[case]["x"] for each in ranks]
        weights = [each[case]["weight"] for each in ranks]
        for rank, each in enumerate(ranks):
            values = each[case]["values"]
            assert_is(values, "model_activation", [xs[rank]] if case == "own" else xs)
            assert_is(values, "model_weight", weights if case == "tp" else [weights[rank]])
    # Every rank has the same bits.
    first, second = (
        {n: v for n, v in each["world"]["values"].items() if "weight" not in n} for each in ranks
    )
    assert first == second
    assert any("gradient" in name for name in first)


def different_layers(rank, folder):
    told = {}
    config = statistics_of(["l1_norm", "max"], ["activation", "dgrad"], freq=2)
    for name in ("skipped", "stages", "empty"):
        values = Values()
        debug_api.initialize(config, log_dir=folder / name, statistics_logger=values)
        if name == "skipped":
            model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        elif name == "stages":
            model = nn.ModuleDict({f"stage{rank}": nn.Linear(2, 2), "shared": nn.Linear(2, 2)})
        else:
            model = nn.Linear(2, 2) if rank else nn.Identity()
        debug_api.attach(model)
        for iteration in range(4):
            x = torch.full((1 + rank, 2), 1.0 + rank + iteration)
            if name == "skipped":
                # The second layer runs on rank 1 only, and there not always.
                model[0](x)
                if rank == 1 and iteration < 2:
                    model[1](x)
            elif name == "stages":
                model[f"stage{rank}"](x)
                model["shared"](x)
            else:
                model(x)
            debug_api.step()
        debug_api.end_debug()
        told[name] = by_name(values)
    return told


def test_layers_that_run_on_one_rank_only_and_stages_of_a_pipeline(tmp_path):
    ranks = on_ranks(different_layers, tmp_path)
    for rank, told in enumerate(ranks):
        # 2 elements of 1 and 4 of 2 in the first iteration; 2 of 3 and 4 of 4 in the third.
        both = {"_activation_l1_norm": ([10.0], [22.0]), "_activation_max": ([2.0], [4.0])}
        expected = {
            f"model.0{stat}/{iteration}": value
            for stat, pair in both.items()
            for iteration, value in zip((0, 2), pair, strict=True)
        }
        expected["model.1_activation_l1_norm/0"] = [8.0]
        expected["model.1_activation_max/0"] = [2.0]
        assert told["skipped"] == expected, rank
        stages = told["stages"]
        assert stages["model.shared_activation_l1_norm/0"] == [10.0]
        assert stages["model.shared_activation_l1_norm/2"] == [22.0]
        assert stages[f"model.stage{rank}_activation_l1_norm/0"] == [[2.0], [8.0]][rank]
        assert f"model.stage{1 - rank}_activation_l1_norm/0" not in stages
    assert ranks[0]["empty"] == {}
    assert ranks[1]["empty"]["model_activation_l1_norm/2"] == [16.0]


def trained_in_each_order(rank, folder, wrapped):
    """A training without a session, attached before it is wrapped, and after."""
    config = statistics_of(["l1_norm", "std"], ALL, freq=2)
    states, logged = {}, {}
    for order in ("plain", "before", "after"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
        values = Values()
        if order != "plain":
            debug_api.initialize(config, log_dir=folder / order, statistics_logger=values)
        if order == "before":
            debug_api.attach(model)
        run = wrapped(model)
        if order == "after":
            debug_api.attach(run)
        optimizer = torch.optim.SGD(run.parameters(), 0.1)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(4):
            optimizer.zero_grad()
            run(torch.randn(3, 4, generator=generator)).square().sum().backward()
            optimizer.step()
            debug_api.step()
        debug_api.end_debug()
        full = [
            one.full_tensor() if hasattr(one, "full_tensor") else one for one in run.parameters()
        ]
        states[order] = [one.tolist() for one in full]
        logged[order] = by_name(values)
    same = states["plain"] == states["before"] == states["after"]
    return {"same": same, "before": logged["before"], "after": logged["after"]}


def data_parallel(rank, folder):
    return trained_in_each_order(rank, folder, nn.parallel.DistributedDataParallel)


def fully_sharded(rank, folder):
    return trained_in_each_order(rank, folder, shard)


def shard(model):
    fully_shard = torch_features.fully_shard()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model


@pytest.mark.parametrize("way", [data_parallel, fully_sharded], ids=["data parallel", "sharded"])
def test_a_training_on_ranks_has_the_same_bits(way, tmp_path):
    if way is fully_sharded:
        torch_features.fully_shard()
    ranks = on_ranks(way, tmp_path)
    names = {name.partition("/")[0] for name in ranks[0]["after"]}
    assert {"model.0_activation_std", "model.2_wgrad_l1_norm"} <= names
    for told in ranks:
        assert told["same"]
        assert told["before"] == told["after"] == ranks[0]["after"]


def shared_amax(rank, folder):
    found = {}
    for shared in (True, False):
        debug_api.initialize("", log_dir=folder / str(shared))
        torch.manual_seed(0)
        model = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(2)])
        debug_api.attach(model, fp8={"reduce_amax": shared, "amax_history_len": 1})
        x = torch.linspace(0.1, 1, 4).reshape(1, 4) * (1 + 4 * rank)
        model[0](x)
        if rank:
            model[1](x)
        debug_api.step()
        scales = []
        for layer, amax in ((model[0], 5.0), (model[1], 5.0)):
            weight = layer.weight.detach()
            by = scale(weight.abs().max(), "E4M3")
            own = float(x.max()) if layer is model[0] or rank else None
            for largest in (amax, own):
                if largest is None:
                    continue
                expected = nn.functional.linear(
                    emulated(x, "E4M3", by=scale(torch.tensor(largest), "E4M3")),
                    emulated(weight, "E4M3", by=by),
                )
                scales.append(bool(torch.equal(layer(x), expected)))
        debug_api.end_debug()
        found[str(shared)] = scales
    return found


def test_ranks_share_the_amax_of_delayed_scaling_where_asked(tmp_path):
    first, second = on_ranks(shared_amax, tmp_path)
    # By 5, by 1; and of the layer that did not run here, by 5.
    assert first["True"] == [True, False, True]
    assert first["False"] == [False, True, False]
    assert second["True"] == second["False"] == [True] * 4


STATISTICS = statistics_of(["l1_norm"], ALL)


def tensor_parallel(rank, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2,))

    def train(config, order):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        values = Values()
        if config is not None:
            place = folder / f"{order}{config is QUANTISED}{rank}"
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
        told = [] if config is None else [one for one in main_log(place, rank) if "summand" in one]
        shards = [one.to_local() for one in model.parameters()]
        gradients = [one.grad.to_local().tolist() for one in model.parameters()]
        weight = shards[0].abs().sum().item()
        found = {name: values[name, 0] for name in values.names}
        return [y.tolist(), x.grad.tolist(), *gradients], found, weight, told

    plain = train(None, "never")
    before, after = train(STATISTICS, "before"), train(STATISTICS, "after")
    changed = train(QUANTISED, "after")
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
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    x = torch.full((2, 4), 1.0 + rank)
    with session(STATISTICS, folder) as values:
        handle = debug_api.attach(model)
        shard(model)
        for _ in range(3):
            model(x).sum().backward()
            debug_api.step()
            handle.detach()
            model(x).sum().backward()
            handle = debug_api.attach(model)
    return by_name(values)


def test_a_model_that_was_sharded_while_attached_is_attached_again(tmp_path):
    torch_features.fully_shard()
    for found in on_ranks(wrapped_while_attached, tmp_path):
        assert len(found) == 3 * (2 * len(ALL) - 1 + 4)
        for iteration in range(3):
            assert found[f"model.0_activation_l1_norm/{iteration}"] == [24.0]


def detached_within_a_step(rank, folder):
    model = nn.Linear(4, 2)
    with session(STATISTICS, folder) as values:
        handle = debug_api.attach(model)
        if rank:
            # Here it has run.
            model(torch.ones(2, 4)).sum().backward()
        handle.detach()
        debug_api.step()
        debug_api.step()
    return by_name(values)


def test_ranks_that_detach_in_the_same_step_merge_what_they_saw(tmp_path):
    first, second = on_ranks(detached_within_a_step, tmp_path)
    assert first["model_activation_l1_norm/0"] == second["model_activation_l1_norm/0"] == [8.0]
    assert "model_weight_l1_norm/0" in second
    assert "model_weight_l1_norm/0" not in first
