"""The collectives of two real ranks, seen without a change of what calls them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import read_all, trace_files
from perfetto.trace_file import Event, Trace
from rank_processes import on_ranks

pytest.importorskip("torch.distributed")

ENQUEUED, WAITED = "enqueued", "waited"


def begin_run(rank: int, folder: Path) -> None:
    import dftrace_ai

    dftrace_ai.initialize(log_file=folder / "trace", rank=rank, world_size=2)


def every_way(rank: int, folder: Path) -> dict[str, Any]:
    """Calls everything that torch.distributed has; each by a name, which is an instant in the trace."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    from torch.distributed.distributed_c10d import _coalescing_manager

    import dftrace_ai
    from dftrace_ai.integrations.torch import collectives
    from dftrace_ai.run import emitting

    begin_run(rank, folder)
    dumps = [torch._C._dispatch_dump(op) for op in DUMPED]
    wait = torch._C._distributed_c10d.Work.__dict__["wait"]
    remove = collectives.install()
    t = torch.ones(1000)
    two = [torch.empty(1000), torch.empty(1000)]
    part = dist.new_group([0, 1], group_desc="both")
    alone = [dist.new_group([r]) for r in range(2)][rank]
    first = rank == 0

    def asynchronous() -> None:
        works = [dist.all_reduce(torch.ones(n), async_op=True) for n in (10, 20)]
        for work in works:
            work.wait()

    def in_inference_mode() -> None:
        with torch.inference_mode():
            dist.all_reduce(torch.ones(10))

    def coalesced() -> None:
        with _coalescing_manager():
            dist.all_reduce(t)
            dist.all_reduce(t)

    def compiled() -> None:
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return functional.all_reduce(x, "sum", dist.group.WORLD) * 2

        made = torch.compile(doubled, backend="aot_eager", fullgraph=True)
        made(t)
        made(t)

    def messages() -> None:
        ops = [dist.P2POp(dist.isend if first else dist.irecv, t, 1 - rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    def dropped() -> None:
        kept.append(dist.isend(t, 1, tag=7) if first else dist.irecv(t, 0, tag=7))

    world = dist.group.WORLD
    kept: list[Any] = []
    ways = {
        "all_reduce": lambda: dist.all_reduce(t),
        "all_reduce in float16": lambda: dist.all_reduce(t.half()),
        "async": asynchronous,
        "inference": in_inference_mode,
        "sparse": lambda: dist.all_reduce(torch.eye(4).to_sparse()),
        "coalesced": coalesced,
        "all_gather": lambda: dist.all_gather(two, t),
        "all_gather_into": lambda: dist.all_gather_into_tensor(torch.empty(2000), t),
        "all_gather_object": lambda: dist.all_gather_object([None, None], rank),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(torch.empty(500), t),
        "broadcast": lambda: dist.broadcast(t, 1),
        "reduce": lambda: dist.reduce(t, 0),
        "gather": lambda: dist.gather(t, two if first else None),
        "scatter": lambda: dist.scatter(t, two if first else None),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty(1000), t),
        "barrier": dist.barrier,
        "monitored_barrier": dist.monitored_barrier,
        "send": lambda: dist.send(t, 1) if first else dist.recv(t, 0),
        "send again": lambda: dist.send(t, 1) if first else dist.recv(t, 0),
        "isend": lambda: (dist.isend(t, 1) if first else dist.irecv(t, 0)).wait(),
        "messages": messages,
        "functional all_reduce": lambda: functional.all_reduce(t, "sum", world) + 1,
        "functional all_gather": lambda: functional.all_gather_tensor(t, 0, world) + 1,
        "functional reduce_scatter": lambda: (
            functional.reduce_scatter_tensor(t, "sum", 0, world) + 1
        ),
        "compiled": compiled,
        "own group": lambda: dist.all_reduce(t, group=part),
        "alone": lambda: dist.all_reduce(t, group=alone),
        "never waited for": dropped,
    }
    for name, way in ways.items():
        emitting.instant(name, category="way")
        way()
    dist.barrier()
    remove()
    for work in kept:
        work.wait()
    dist.all_reduce(t)
    same = [torch._C._dispatch_dump(op) for op in DUMPED] == dumps
    put_back = torch._C._distributed_c10d.Work.__dict__["wait"] is wait
    dftrace_ai.finalize()
    return {"same": same, "put_back": put_back, "part": part.group_name, "world": world.group_name}


DUMPED = ("c10d::allreduce_", "c10d::barrier", "_c10d_functional::reduce_scatter_tensor")

# What each way gives: names of spans, bytes, and what is said of their ends.
EXPECTED: dict[str, list[tuple[str, int | None, str | None]]] = {
    "all_reduce": [("all_reduce", 4000, None)],
    "all_reduce in float16": [("all_reduce", 2000, None)],
    "async": [("all_reduce", 40, None), ("all_reduce", 80, None)],
    "inference": [("all_reduce", 40, None)],
    "sparse": [("all_reduce", 4 * 4 + 4 * 2 * 8, None)],
    "coalesced": [("all_reduce", 8000, None)],
    "all_gather": [("all_gather", 8000, None)],
    "all_gather_into": [("all_gather", 8000, None)],
    "reduce_scatter": [("reduce_scatter", 4000, WAITED)],
    "broadcast": [("bcast", 4000, None)],
    "reduce": [("reduce", 4000, None)],
    "all_to_all": [("all_to_all", 4000, None)],
    "barrier": [("barrier", None, None)],
    "functional all_reduce": [("all_reduce", 4000, None)],
    "functional all_gather": [("all_gather", 8000, None)],
    "functional reduce_scatter": [("reduce_scatter", 4000, ENQUEUED)],
    "compiled": [("all_reduce", 4000, None)] * 2,
    "own group": [("all_reduce", 4000, None)],
    "alone": [("all_reduce", 4000, None)],
}


def by_way(trace: Trace) -> dict[str, list[Event]]:
    """The collectives by what called them, in their order."""
    events = sorted(trace.of("X", "i"), key=lambda event: event.ts_ns)
    found: dict[str, list[Event]] = {}
    for event in events:
        if event.cat == "way":
            found[event.name] = last = []
        elif event.cat == "comm":
            last.append(event)
    return found


def test_every_way_to_communicate(tmp_path: Path) -> None:
    said = on_ranks(every_way, tmp_path)
    assert [(one["same"], one["put_back"]) for one in said] == [(True, True)] * 2
    traces = sorted(read_all(trace_files(tmp_path)), key=lambda trace: int(trace.header["rank"]))
    assert [trace.of("B") for trace in traces] == [[], []]
    ways = [by_way(trace) for trace in traces]
    for found in ways:
        told = {
            way: [(e.name, e.user.get("bytes"), e.user.get("until")) for e in events]
            for way, events in found.items()
            if way in EXPECTED
        }
        assert told == EXPECTED
        # Of each it is known for how long somebody waits in Python, or how late its end is seen.
        assert all(
            e.user.keys() & {"waited_us", "late_us"}
            for way, events in found.items()
            if way in EXPECTED and way != "functional reduce_scatter"
            for e in events
        )
        # Work of a barrier may have been done when the last one began to wait for it.
        assert all("waited_us" in e.user for e in found["barrier"])
        assert all(e.user["waited_us"] > 0 for e in found["monitored_barrier"])
    zero, one = ways
    # Both count alike, group by group.
    for way, events in zero.items():
        mine, others = (
            [(e.user["group"], e.user.get("seq")) for e in x] for x in (events, one[way])
        )
        assert way == "alone" or mine == others, way
    # So does each name by itself, and messages are none of them.
    for found in ways:
        counted: dict[tuple[str, str], list[int]] = {}
        for e in (e for events in found.values() for e in events if "peer" not in e.user):
            counted.setdefault((e.user["group"], e.name), []).append(e.user["nth"])
        assert all(numbers == list(range(len(numbers))) for numbers in counted.values())
        assert counted[said[0]["world"], "all_reduce"][5:]
        assert not [e for way in ("send", "messages") for e in found[way] if "nth" in e.user]
    assert {e.user["group"] for e in zero["own group"]} == {said[0]["part"]}
    assert {e.user["group"] for e in zero["barrier"]} == {said[0]["world"]}
    roots = {way: zero[way][0].user["root"] for way in ("broadcast", "reduce", "gather", "scatter")}
    assert roots == {"broadcast": 1, "reduce": 0, "gather": 0, "scatter": 0}
    for rank, found in enumerate(ways):
        name = ("send", "receive")[rank]
        for way, seq in (("send", 0), ("send again", 1), ("isend", 2), ("messages", 3)):
            (event,) = found[way]
            assert (event.name, event.user["direction"]) == (name, name)
            assert (event.user["peer"], event.user["seq"]) == (1 - rank, seq)
            assert (event.user["bytes"], event.user["until"]) == (4000, WAITED)
        assert [e.user["until"] for e in found["never waited for"] if e.name == name] == ["removed"]
    groups = [
        json.loads(e.args["value"])
        for e in traces[0].meta("CM")
        if e.args["name"] == "process_group"
    ]
    assert Counter(group["name"] for group in groups).most_common(1)[0][1] == 1
    assert {"name": said[0]["part"], "description": "both", "ranks": [0, 1]} in groups
