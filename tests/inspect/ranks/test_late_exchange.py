"""Ranks whose devices run behind exchange records over the following steps: nothing is waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from attached_models import Values, section, statistics_of
from inspect_sessions import main_log
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
    from late_rings import through_rings

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
