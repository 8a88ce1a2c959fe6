"""Several ranks: whose statistics are merged, who logs them, and that no rank waits for ever."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch_features
from attached_models import Values, emulated, scale, statistics_of
from rank_processes import on_ranks
from torch import nn

import dftrace_ai.inspect as debug_api

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs gloo",
)

STD = ["mean", "std", "max"]


def whole(parts):
    joined = torch.cat([torch.tensor(part).reshape(-1) for part in parts]).double()
    return {"mean": joined.mean(), "std": joined.std(), "max": joined.max()}


def assert_is(values, name, iteration, parts):
    for stat, expected in whole(parts).items():
        (found,) = values[f"{name}_{stat}/{iteration}"]
        assert found == pytest.approx(float(expected), rel=1e-5, abs=1e-6), (name, stat)


def merged_over_ranks(rank, folder):
    stats = ["mean", "std", "max"]
    config = statistics_of(stats, ["activation", "weight", "gradient"])
    config["all"]["LogTensorStats"] = {"enabled": True, "stats": stats, "tensors": ["given"]}
    own = [dist.new_group([one]) for one in range(2)][rank]
    both = dist.new_group([0, 1])
    told = {}

    def case(name, **attach):
        return Case(name, attach)

    class Case:
        def __init__(self, name, attach):
            self.name, self.attach = name, attach

        def __enter__(self):
            self.values = Values()
            debug_api.initialize(config, log_dir=folder / self.name, statistics_logger=self.values)
            torch.manual_seed(rank)
            self.model = nn.Linear(3, 2)
            return self

        def __exit__(self, *error):
            # Shards of unequal shapes, far from each other.
            debug_api.attach(self.model, **self.attach)
            x = torch.randn(4 + 3 * rank, 3) + 10 * rank
            self.model(x).square().sum().backward()
            debug_api.step()
            debug_api.end_debug()
            told[self.name] = {
                "values": {f"{n}/{i}": v for (n, i), v in self.values.found.items()},
                "x": x.tolist(),
                "weight": self.model.weight.tolist(),
            }

    with case("world"):
        pass
    with case("own"):
        debug_api.set_tensor_reduction_group(own)
    with case("tp", tp_group=both):
        pass
    with case("tp off", tp_group=both):
        debug_api.set_weight_tensor_tp_group_reduce(False)
    with case("explicit"):
        given = torch.arange(2.0 + rank) * (1 + rank)
        returned = [
            debug_api.log_tensor_stats("layer", tensor=given, tensor_name="given", **keys)
            for keys in ({}, {"reduction_group": both}, {"skip_reduction": True})
        ]
        told["given"] = given.tolist()
        told["returned"] = [{k: float(v) for k, v in each.items()} for each in returned]
    return told


def test_who_logs_what(tmp_path):
    ranks = on_ranks(merged_over_ranks, tmp_path)
    for case in ("world", "own", "tp", "tp off"):
        xs = [each[case]["x"] for each in ranks]
        weights = [each[case]["weight"] for each in ranks]
        for rank, each in enumerate(ranks):
            values = each[case]["values"]
            assert_is(values, "model_activation", 0, [xs[rank]] if case == "own" else xs)
            assert_is(values, "model_weight", 0, weights if case == "tp" else [weights[rank]])
    # Every rank has the same bits.
    first, second = (
        {n: v for n, v in each["world"]["values"].items() if "weight" not in n} for each in ranks
    )
    assert first == second
    assert any("gradient" in name for name in first)
    parts = [each["given"] for each in ranks]
    for rank, each in enumerate(ranks):
        world, group, local = each["returned"]
        assert bool(world) == (rank == 1)
        everywhere = {name: float(value) for name, value in whole(parts).items()}
        assert group == pytest.approx(everywhere)
        if rank == 1:
            assert world == group
        here = {name: float(value) for name, value in whole([parts[rank]]).items()}
        assert local == pytest.approx(here)
        logged = each["explicit"]["values"]["layer_given_max/0"]
        assert len(logged) == (3 if rank == 1 else 2)


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
        told[name] = {f"{n}/{i}": v for (n, i), v in values.found.items()}
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


def data_parallel(rank, folder):
    from torch.nn.parallel import DistributedDataParallel as Wrapped

    config = statistics_of(["l1_norm", "std"], ["activation", "dgrad", "wgrad"], freq=2)

    def train(order):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
        values = Values()
        if order is not None:
            debug_api.initialize(config, log_dir=folder / order, statistics_logger=values)
        if order == "before":
            debug_api.attach(model)
        wrapped = Wrapped(model)
        if order == "after":
            debug_api.attach(wrapped)
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(4):
            optimizer.zero_grad()
            wrapped(torch.randn(3, 4, generator=generator)).square().sum().backward()
            optimizer.step()
            debug_api.step()
        debug_api.end_debug()
        state = [one.tolist() for one in model.parameters()]
        return state, {f"{n}/{i}": v for (n, i), v in values.found.items()}

    plain, before, after = (train(order) for order in (None, "before", "after"))
    return {
        "same": plain[0] == before[0] == after[0],
        "before": before[1],
        "after": after[1],
    }


def test_data_parallel_training_has_the_same_bits(tmp_path):
    ranks = on_ranks(data_parallel, tmp_path)
    for told in ranks:
        assert told["same"]
        assert told["before"] == told["after"] == ranks[0]["before"]
        assert "model.0_activation_std/2" in told["after"]
        assert "model.2_wgrad_l1_norm/0" in told["after"]


def fully_sharded(rank, folder):
    fully_shard = torch_features.fully_shard()
    config = statistics_of(
        ["l1_norm"], ["activation", "weight", "output", "gradient", "dgrad", "wgrad"], freq=2
    )

    def train(order):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        values = Values()
        if order is not None:
            debug_api.initialize(config, log_dir=folder / order, statistics_logger=values)
        if order == "before":
            debug_api.attach(model)
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
        if order == "after":
            debug_api.attach(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(3, 4, generator=generator)).square().sum().backward()
            optimizer.step()
            debug_api.step()
        debug_api.end_debug()
        state = [one.full_tensor().tolist() for one in model.parameters()]
        return state, {f"{n}/{i}": v for (n, i), v in values.found.items()}

    plain, before, after = (train(order) for order in (None, "before", "after"))
    return {
        "same": [plain[0] == before[0], plain[0] == after[0]],
        "before": before[1],
        "after": after[1],
    }


def test_fully_sharded_training_has_the_same_bits(tmp_path):
    torch_features.fully_shard()
    ranks = on_ranks(fully_sharded, tmp_path)
    for told in ranks:
        assert told["same"] == [True, True]
        assert told["before"] == told["after"] == ranks[0]["after"]
        assert len(told["after"]) == 2 * (2 * 6 - 1)


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
