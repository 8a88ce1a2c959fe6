"""Ranks that do not fit together, or are gone: each trains on, and says what it logs from then."""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import trace_files
from inspect_sessions import base_config, main_log, scalars, statistics_of
from rank_processes import run_on_ranks
from torch import nn

import dftrace_ai
import dftrace_ai.inspect as debug_api


def config(freq: int) -> dict[str, Any]:
    return statistics_of(["l1_norm"], ["activation"], freq=freq)


def linear() -> nn.Linear:
    return nn.Linear(1, 1, bias=False)


def told_of(found: dict[str, torch.Tensor]) -> dict[str, float]:
    return {stat: value.item() for stat, value in found.items()}


def of_all_scenarios(rank: int, out: Path) -> None:
    """Each scenario has a session of its own; in the last one rank 1 is gone."""
    told: dict[str, Any] = {}

    def begin(name: str, freq: int = 1, **more: Any) -> None:
        debug_api.initialize(config(freq), log_dir=out / name, default_logging_enabled=True, **more)

    def train(name: str, steps: int, model: nn.Module, freq: int = 1, **more: Any) -> None:
        begin(name, freq, **more)
        debug_api.attach(model)
        for _ in range(steps):
            model(torch.ones(1, 1) * (rank + 1))
            debug_api.step()
        debug_api.end_debug()

    def explicit(tensor: torch.Tensor, **keys: Any) -> dict[str, float]:
        return told_of(debug_api.log_tensor_stats("fc", tensor, "activation", **keys))

    dist.destroy_process_group()
    with dftrace_ai.tracing(log_file=out / "trace"):
        begin("late")
        dist.init_process_group("gloo", init_method=f"file://{out}/meet", rank=rank, world_size=2)
        late = linear()
        debug_api.attach(late)
        late(torch.ones(1, 1))
        debug_api.step()
        debug_api.end_debug()

    many = nn.Sequential(*(linear() for _ in range(70)))
    for layer in many:
        nn.init.ones_(layer.weight)
    train("many", 2, many)
    train("config", 4, linear(), freq=1 + rank)
    train("iteration", 4, linear(), freq=2, init_training_step=rank)

    begin("child")
    model = linear()
    debug_api.attach(model)
    model(torch.ones(1, 1) * (rank + 1))
    debug_api.step()
    child = os.fork()
    if not child:
        signal.alarm(20)
        debug_api.step()
        debug_api.end_debug()
        os._exit(7)
    told["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    debug_api.end_debug()

    only_first = dist.new_group([0])
    debug_api.initialize(base_config(["l1_norm"]), log_dir=out / "stranger")
    debug_api.set_tensor_reduction_group(only_first)
    told["stranger"] = [explicit(torch.ones(rank + 1)) for _ in range(2)]
    debug_api.end_debug()

    debug_api.initialize(base_config(["l1_norm"]), log_dir=out / "destroyed")
    gone = dist.new_group([0, 1])
    dist.destroy_process_group(gone)
    told["destroyed"] = [
        explicit(torch.ones(rank + 1), reduction_group=group)["l1_norm"]
        for group in (gone, "a group", gone)
    ]
    debug_api.end_debug()

    debug_api.initialize(base_config(["l1_norm"]), log_dir=out / "unusable")
    tensor = torch.ones(2, device="meta") if rank == 0 else torch.ones(2)
    told["unusable"] = explicit(tensor, reduction_group=dist.group.WORLD)
    tensor = torch.ones(2, dtype=torch.complex64) if rank == 0 else torch.ones(2)
    try:
        told["complex"] = explicit(tensor, reduction_group=dist.group.WORLD)["l1_norm"]
    except TypeError as error:
        told["complex"] = str(error)
    debug_api.end_debug()

    begin("gone")
    model = linear()
    debug_api.attach(model)
    for number in range(4):
        if rank == 1 and number == 2:
            (out / "told1.json").write_text(json.dumps(told))
            os._exit(0)
        model(torch.ones(1, 1) * (rank + 1))
        debug_api.step()
    debug_api.end_debug()
    debug_api.initialize(base_config(["l1_norm"]), log_dir=out / "explicit")
    told["explicit"] = [explicit(torch.ones(3))["l1_norm"] for _ in range(2)]
    debug_api.end_debug()
    (out / "told0.json").write_text(json.dumps(told))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Run the ranks; return where the logs are, and what each has told."""
    folder = tmp_path_factory.mktemp("ranks")
    run_on_ranks(of_all_scenarios, folder, 2)
    return folder, [json.loads((folder / f"told{rank}.json").read_text()) for rank in range(2)]


def logged(folder: Path, rank: int) -> list[tuple[int, float]]:
    return [(one.iteration, float(one.value)) for one in scalars(folder, rank)]


def errors(folder: Path, rank: int) -> list[str]:
    return [line for line in main_log(folder, rank) if line.startswith("ERROR")]


def test_a_group_that_is_up_after_initialize(job: tuple[Path, Any]) -> None:
    ranks = [
        event["args"]["rank"]
        for path in trace_files(job[0])
        for event in map(json.loads, gzip.decompress(path.read_bytes()).splitlines()[1:-1])
        if event.get("cat") == "tensor_stats"
    ]
    assert sorted(ranks) == [0, 1]


def test_more_records_than_one_message_has(job: tuple[Path, Any]) -> None:
    folder = job[0] / "many"
    for rank in range(2):
        found = scalars(folder, rank)
        assert [one.name for one in found[:70]] == [
            f"model.{number}_activation_l1_norm" for number in range(70)
        ]
        assert {one.value for one in found} == {"3.0000"}
        assert len(found) == 140


def test_ranks_with_unlike_configs_log_their_own(job: tuple[Path, Any]) -> None:
    folder = job[0] / "config"
    assert logged(folder, 0) == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0)]
    assert logged(folder, 1) == [(0, 2.0), (2, 2.0)]
    for rank in range(2):
        (told,) = errors(folder, rank)
        assert "the ranks have different configs" in told


def test_ranks_in_unlike_iterations_log_their_own(job: tuple[Path, Any]) -> None:
    folder = job[0] / "iteration"
    assert logged(folder, 0) == [(0, 1.0), (2, 1.0)]
    assert logged(folder, 1) == [(2, 2.0), (4, 2.0)]
    for rank in range(2):
        (told,) = errors(folder, rank)
        assert "the ranks are in different iterations: 0, 2" in told


def test_a_forked_child_leaves_the_group_to_its_parent(job: tuple[Path, Any]) -> None:
    folder, told = job
    assert [one["child"] for one in told] == [7, 7]
    for rank in range(2):
        assert logged(folder / "child", rank) == [(0, 3.0)]
        assert errors(folder / "child", rank) == []


def test_a_rank_that_is_no_member_logs_its_own(job: tuple[Path, Any]) -> None:
    folder, told = job
    assert told[0]["stranger"] == [{"l1_norm": 1.0}] * 2
    assert told[1]["stranger"] == [{"l1_norm": 2.0}] * 2
    warned = [line for line in main_log(folder / "stranger", 1) if "no member" in line]
    assert len(warned) == 1


def test_what_is_no_group_any_more_is_told_and_not_used(job: tuple[Path, Any]) -> None:
    folder, told = job
    for rank in range(2):
        assert told[rank]["destroyed"] == [rank + 1.0] * 3
        assert len(errors(folder / "destroyed", rank)) == 2


def test_a_tensor_that_has_no_statistics_keeps_nobody_waiting(job: tuple[Path, Any]) -> None:
    folder, told = job
    assert [one["unusable"] for one in told] == [{"l1_norm": 2.0}] * 2
    assert "complex tensor has no statistics" in told[0]["complex"]
    assert told[1]["complex"] == 2.0
    (failure,) = errors(folder / "unusable", 0)
    assert failure.startswith("ERROR - fc: the statistics of activation failed")


def test_when_a_rank_is_gone_the_other_trains_on(job: tuple[Path, Any]) -> None:
    folder, told = job
    assert logged(folder / "gone", 0) == [(0, 3.0), (1, 3.0), (2, 1.0), (3, 1.0)]
    (failure,) = errors(folder / "gone", 0)
    assert "An exchange of records with other ranks failed" in failure
    assert told[0]["explicit"] == [3.0, 3.0]
    assert len(errors(folder / "explicit", 0)) == 1
