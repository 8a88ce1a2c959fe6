"""Ranks whose devices are behind: the same numbers as without, on all ranks, and none waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_sessions import Values, main_log, section, statistics_of
from late_rings import through_rings
from rank_processes import on_ranks
from torch import nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.collecting import collector

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs gloo",
)

STEPS = 7


def as_with_nccl(group: Any) -> bool:
    """What `behind` says of a group that exchanges what is on GPUs."""
    return True


class Arrivals(Values):
    """Keeps, too, in which step each number came."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.came: dict[str, int] = {}

    def log_scalar(self, name: str, value: float, iteration: int, **kw: Any) -> None:
        super().log_scalar(name, value, iteration, **kw)
        self.came[f"{name}/{iteration}"] = self.now


def network(rank: int) -> nn.Module:
    """More layers than one message has room for, and on the second rank one less."""
    torch.manual_seed(0)
    layers = [nn.Linear(3, 3) for _ in range(40 - rank)]
    return nn.Sequential(*layers)


def trained(rank: int, folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = {}
    config = statistics_of(["mean", "std", "max"], ["activation", "weight"], freq=2)
    for late in (False, True):
        values = Arrivals()
        debug_api.initialize(config, log_dir=folder / str(late), statistics_logger=values)
        copies = through_rings(1, generations=4) if late else None
        collector.behind = as_with_nccl if late else collector.behind
        model = network(rank)
        debug_api.attach(model)
        for step in range(STEPS):
            values.now = step
            torch.manual_seed(step)
            model(torch.randn(2 + rank, 3) + 10 * rank)
            if copies is not None:
                copies.now += 1
            debug_api.step()
        values.now = STEPS
        waits = 0 if copies is None else copies.waits
        debug_api.end_debug()
        logged = {f"{name}/{step}": found for (name, step), found in values.found.items()}
        told[str(late)] = {"logged": logged, "came": values.came, "waits": waits}
        told[str(late)]["said"] = main_log(folder / str(late), rank)
    return told


def test_what_is_exchanged_later_is_what_is_exchanged_at_once(tmp_path: Path) -> None:
    ranks = on_ranks(trained, tmp_path)
    for told in ranks:
        late, at_once = told["True"], told["False"]
        assert list(late["logged"]) == list(at_once["logged"])
        for name, found in late["logged"].items():
            assert found == pytest.approx(at_once["logged"][name], rel=1e-5, abs=1e-6), name
        assert late["waits"] == 0
        assert not [line for line in late["said"] + at_once["said"] if line.startswith("ERROR")]
        # Two messages are under way for a step each; at the end nothing is left under way.
        for name, step in at_once["came"].items():
            assert step == int(name.rpartition("/")[2])
            assert late["came"][name] == min(step + 3, STEPS), name
    first, second = (told["True"]["logged"] for told in ranks)
    shared = [name for name in second if "activation" in name]
    assert len(shared) == 39 * 3 * 4
    assert all(first[name] == second[name] for name in shared)


def of_unlike_configs(rank: int, folder: Path) -> dict[str, Any]:
    collector.behind = as_with_nccl
    values = Values()
    config = statistics_of(["l1_norm"], ["activation"], freq=1 + rank)
    debug_api.initialize(config, log_dir=folder, statistics_logger=values)
    model = nn.Linear(1, 1)
    debug_api.attach(model)
    for _ in range(STEPS):
        model(torch.ones(1, 1) * (rank + 1))
        debug_api.step()
    debug_api.end_debug()
    return {
        "logged": [found for (_, _), found in values.found.items()],
        "said": [line for line in main_log(folder, rank) if line.startswith("ERROR")],
    }


def test_ranks_that_do_not_fit_together_say_so_and_train_on(tmp_path: Path) -> None:
    ranks = on_ranks(of_unlike_configs, tmp_path)
    for rank, told in enumerate(ranks):
        assert told["logged"] == [[rank + 1.0]] * len(range(0, STEPS, 1 + rank))
        (line,) = told["said"]
        assert "different configs" in line


def of_two_groups(rank: int, folder: Path) -> dict[str, Any]:
    import torch.distributed as dist

    collector.behind = as_with_nccl
    values = Values()
    config = section(
        {"LogTensorStats": {"stats": ["l1_norm"], "tensors": ["activation", "weight"]}}
    )
    debug_api.initialize(config, log_dir=folder, statistics_logger=values)
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, rank + 1.0)
    debug_api.attach(model, tp_group=dist.new_group([0, 1]))
    for step in range(3):
        model(torch.ones(1, 1) * (rank + 10 ** (step + 1)))
        debug_api.step()
    debug_api.end_debug()
    return {f"{name}/{step}": found for (name, step), found in values.found.items()}


def test_two_groups_one_after_another(tmp_path: Path) -> None:
    wanted = {}
    for step in range(3):
        wanted[f"model_activation_l1_norm/{step}"] = [2.0 * 10 ** (step + 1) + 1]
        wanted[f"model_weight_l1_norm/{step}"] = [3.0]
    assert on_ranks(of_two_groups, tmp_path) == [wanted, wanted]


def with_explicit_calls(rank: int, folder: Path) -> dict[str, Any]:
    config = statistics_of(["mean", "std", "max"], ["activation", "weight", "dgrad"], freq=2)
    explicit = {"enabled": True, "stats": ["mean", "l2_norm"], "tensors": ["y"], "freq": 1}
    config["all"]["LogTensorStats"] = explicit
    told: dict[str, Any] = {}
    for late in (False, True):
        values = Values()
        debug_api.initialize(config, log_dir=folder / str(late), statistics_logger=values)
        # One rank is behind by a step, the other by more than its ring holds.
        copies = through_rings(1 + 9 * rank, generations=3) if late else None
        torch.manual_seed(rank)
        model = nn.Linear(3, 2)
        debug_api.attach(model)
        returned = []
        for step in range(7):
            # Shards of unequal shapes; on one rank sometimes there is nothing.
            x = torch.randn((2 + 3 * rank) * (step != 2 or rank), 3, requires_grad=True)
            y = model(x + 10 * rank)
            for keys in ({}, {"skip_reduction": True}):
                got = debug_api.log_tensor_stats("net", tensor=y, tensor_name="y", **keys)
                returned.append({name: float(value) for name, value in got.items()})
            y.square().sum().backward()
            if copies is not None:
                copies.now += 1
            debug_api.step()
        debug_api.end_debug()
        logged = {f"{name}/{step}": found for (name, step), found in values.found.items()}
        told[str(late)] = {"logged": logged, "returned": returned}
    return told


def test_ranks_that_are_behind_merge_what_ranks_that_are_not_merge(tmp_path: Path) -> None:
    ranks = on_ranks(with_explicit_calls, tmp_path)
    for told in ranks:
        late, at_once = told["True"], told["False"]
        assert list(late["logged"]) == list(at_once["logged"])
        for name, found in late["logged"].items():
            assert found == pytest.approx(at_once["logged"][name], rel=1e-5, abs=1e-6), name
        for found, wanted in zip(late["returned"], at_once["returned"], strict=True):
            assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    first, last = (told["True"] for told in ranks)
    merged = [name for name in first["logged"] if "activation" in name]
    assert len(merged) == 12
    for name in merged:
        assert first["logged"][name] == last["logged"][name]
    # The last rank alone logs what is merged over all; each logs what is its own.
    assert first["returned"][0] == {}
    assert last["returned"][0]
    assert first["returned"][4:6] == [{}, {}]
    assert len(last["logged"]["net_y_mean/4"]) == 2
    assert len(first["logged"]["net_y_mean/4"]) == 1
