"""Ranks whose devices are behind: the same numbers as without, on all ranks, and none hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from attached_models import Values, statistics_of
from rank_processes import on_ranks
from torch import nn

import dftrace_ai.inspect as debug_api

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs gloo",
)


def behind(rank: int, folder: Path) -> dict[str, Any]:
    from late_rings import through_rings

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
    ranks = on_ranks(behind, tmp_path)
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
