"""Who is in a group is known from what is kept of a trace: its last parts, a flight recorder's last events."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import Traced
from perfetto.trace_file import Trace

import dftrace_ai
from dftrace_ai.analysis.summary.figures import summarise
from dftrace_ai.integrations.auto import Auto

LIMIT = 64 * 1024


def groups(trace: Trace) -> list[str]:
    told = [one.args["value"] for one in trace.of("M") if one.args.get("name") == "process_group"]
    return [json.loads(one)["name"] for one in told]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_file_bytes": LIMIT, "max_files": 3, "compression": "none"},
        {"flight_recorder": True, "spool_bytes": 1 << 20},
    ],
    ids=["parts", "flight recorder"],
)
def test_groups_are_told_again(traced: Traced, auto: Auto, settings: dict[str, Any]) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        pair, numbers = dist.new_group([0], group_desc="pair"), torch.ones(4)
        with traced(perfetto=False, **settings) as run:
            auto(parts="collectives")
            for _ in range(4000):
                dist.all_reduce(numbers)
                dist.all_reduce(numbers, group=pair)
            if "flight_recorder" in settings:
                dftrace_ai.dump()
            auto.remove()
    finally:
        dist.destroy_process_group()
    kept = [trace for trace in run.traces if trace.named("all_reduce")]
    assert kept
    for trace in kept:
        named = Counter(one.args["group"] for one in trace.named("all_reduce"))
        assert named.keys() <= set(groups(trace))
    assert sum(len(trace.named("all_reduce")) for trace in kept) < 8000
    if "max_files" in settings:
        assert len(kept) == 3
        assert [len(groups(trace)) for trace in kept] == [2, 2, 2]
        assert summarise([run.folder]).events == sum(one.footer["events"] for one in kept)
