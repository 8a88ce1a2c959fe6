"""What `why` says of two ranks of which one comes late: the other stands still, in every way there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_features
from conftest import read_all, trace_files
from rank_processes import on_ranks

from dftrace_ai.analysis.ranks.job import read_ranks
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import Job, Steps, measure
from dftrace_ai.analysis.why import LIMITS, why

pytest.importorskip("torch.distributed")

STEPS = 24
ENOUGH = LIMITS["steps"].warning
# Many times what the rest of a step takes: on a machine that is busy more than so much.
LATE_S = 0.02


def trained(rank: int, folder: Path) -> list[str]:
    """Trains in several ways, each traced into a folder of its name; rank 1 comes late."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
    from torch.nn.parallel import DistributedDataParallel

    import dftrace_ai
    from dftrace_ai import ai

    first, other, t = rank == 0, 1 - rank, torch.ones(1000)
    works: list[Any] = []
    late_s = 0.0

    def late() -> None:
        if not first:
            time.sleep(late_s)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            late()
            y: torch.Tensor = self.inner(x)
            return y

    def train(communicate: Callable[[], Any], net: nn.Module | None = None) -> None:
        model = nn.Linear(16, 16) if net is None else net
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.ones(4, 16)).sum().backward()
            communicate()
            optimizer.step()

    def after(communicate: Callable[[], Any]) -> Callable[[], None]:
        """Trains, and has each step communicate when rank 1 comes late."""

        def once() -> None:
            late()
            communicate()

        return lambda: train(once)

    def batched() -> None:
        ops = [dist.P2POp(op, t.clone(), other) for op in (dist.isend, dist.irecv)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    def by_future() -> None:
        works.append(dist.all_reduce(t, async_op=True))
        works[-1].get_future().wait()

    def hidden() -> None:
        work = dist.all_reduce(t, async_op=True)
        while not work.is_completed():
            time.sleep(0.0002)
        time.sleep(late_s)
        work.wait()

    def fsdp() -> None:
        model = Net()
        mesh = init_device_mesh("cpu", (2,))
        torch_features.fully_shard()(model, mesh=mesh)
        train(lambda: None, model)

    def pipeline() -> None:
        stage = PipelineStage(Net(), rank, 2, torch.device("cpu"))
        optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
        schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
        for _ in range(STEPS):
            optimizer.zero_grad()
            schedule.step(*([torch.ones(4, 16)] if first else []), target=torch.ones(4, 16))
            optimizer.step()

    def virtual_stages() -> None:
        nets = [Net(), Net()]
        stages = [
            PipelineStage(net, rank + 2 * at, 4, torch.device("cpu")) for at, net in enumerate(nets)
        ]
        optimizer = torch.optim.SGD(nn.ModuleList(nets).parameters(), lr=0.1)
        schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=nn.functional.mse_loss)
        for _ in range(3):
            optimizer.zero_grad()
            schedule.step(*([torch.ones(4, 16)] if first else []), target=torch.ones(4, 16))
            optimizer.step()

    def by_hand() -> None:
        model = nn.Linear(16, 16)
        for step in range(STEPS):
            ai.update(step=step)
            with ai.compute.forward:
                model(t[:16])
            late()
            with ai.comm.all_reduce:
                dist.all_reduce(t)

    def with_loader() -> None:
        model = nn.Linear(16, 16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for batch in torch.utils.data.DataLoader(torch.ones(STEPS * 2, 16), batch_size=4):
                optimizer.zero_grad()
                model(batch).sum().backward()
                late()
                dist.all_reduce(t)
                optimizer.step()

    at_s: list[float] = []

    def timed() -> None:
        dist.all_reduce(t)
        at_s.append(time.monotonic())

    train(timed)
    step_s = torch.tensor(np.median(np.diff(at_s)))
    dist.all_reduce(step_s, dist.ReduceOp.MAX)
    late_s = min(max(LATE_S, 10 * float(step_s)), 0.5)
    both = [torch.empty(1000), torch.empty(1000)]
    ways = {
        "blocking": after(lambda: [dist.all_reduce(t) for _ in range(3)]),
        "objects": after(lambda: dist.all_gather_object([None, None], rank)),
        "async": after(lambda: dist.all_reduce(t, async_op=True).wait()),
        "all at once": after(
            lambda: [w.wait() for w in [dist.all_gather(both, t, async_op=True) for _ in "abc"]]
        ),
        "future": after(by_future),
        "receive": after(lambda: dist.recv(t, 1) if first else dist.send(t, 0)),
        "irecv": after(lambda: (dist.irecv(t, 1) if first else dist.isend(t, 0)).wait()),
        "batched": after(batched),
        "barrier": after(dist.monitored_barrier),
        "functional": after(lambda: functional.all_reduce(t, "sum", [0, 1]) + 1),
        "ddp": lambda: train(lambda: None, DistributedDataParallel(Net())),
        **({"fsdp": fsdp} if torch_features.has_fully_shard() else {}),
        "pipeline": pipeline,
        "by hand": by_hand,
        "hidden": lambda: train(hidden),
        "with a loader": with_loader,
    }
    for name, way in ways.items():
        dist.barrier()
        with dftrace_ai.tracing(log_file=folder / "out" / name / "t", rank=rank, world_size=2):
            if name != "by hand":
                dftrace_ai.auto()
            way()
            if name != "by hand":
                dftrace_ai.auto.remove()
    with dftrace_ai.tracing(log_file=folder / "out" / "virtual stages" / "t"):
        dftrace_ai.auto()
        virtual_stages()
        dftrace_ai.auto.remove()
    return list(ways)


def share_of(steps: Steps, part: Any) -> float:
    # In the first step threads and connections are made.
    return float(steps.parts[part][1:].sum() / steps.time_ns[1:].sum())


def test_who_waits_for_a_late_rank_communicates(tmp_path: Path) -> None:
    ways = on_ranks(trained, tmp_path)[0]
    for way in ways:
        out = tmp_path / "out" / way
        measured = [measure(rank.process) for rank in Job(open_traces([out])).ranks]
        assert None not in measured
        for rank, steps in zip(read_ranks(open_traces([out])).ranks, measured, strict=True):
            assert steps is not None
            rows = [chunk.steps for chunk in rank.chunks.values()]
            own = [chunk.own_ns(len(rank.names)).sum(1) for chunk in rank.chunks.values()]
            blocked = np.concatenate([one.blocked_ns for one in rows])
            assert blocked.tolist() == steps.parts["comm"].tolist(), way
            assert (np.concatenate(own) + blocked).tolist() == steps.time_ns.tolist(), way
        zero = measured[0]
        assert zero is not None
        verdict = why([out])
        told = {part: share_of(zero, part) for part in ("comm", "none", "forward", "backward")}
        if way == "hidden":
            # Ranks that share processors with others drift apart, and then do wait.
            assert told["comm"] < told["none"], told
            assert verdict.verdict not in {"late-rank", "communication-bound"}
        else:
            assert told["comm"] > max(told["none"], told["forward"] + told["backward"]), (way, told)
            # Who is late comes first, where few enough ranks are. On a machine so busy that the first steps
            # pass for a warm-up too few are left to judge.
            assert verdict.steps is not None
            few = {"abstained"} if verdict.steps.steady < ENOUGH else set()
            assert verdict.verdict in {"late-rank", "communication-bound"} | few, way
        if way == "with a loader":
            continue
        first = [line for one in verdict.findings[:1] for line in (one.because, one.next)]
        lines = [*first, *verdict.unseen]
        assert "loader" not in " ".join(lines), way
    # DDP waits in its backward by itself, and what it has waited for ends in it.
    for trace in read_all(trace_files(tmp_path / "out" / "ddp")):
        passes = {e.id: e for e in trace.named("backward")}
        made = [e for e in trace.named("all_reduce") if e.p_idx in passes]
        assert len(made) >= STEPS
        assert not [e for e in made if e.end_ns > passes[e.p_idx].end_ns]
    # A schedule has several forwards before it has a backward, and tells which microbatch each is of.
    stages = sorted(
        read_all(trace_files(tmp_path / "out" / "pipeline")), key=lambda t: int(t.header["rank"])
    )
    for rank, trace in enumerate(stages):
        # In the first step shapes are asked for as well.
        last = [e for e in trace.spans if e.user.get("step", 0) > 0]
        each = [0, 1] * (STEPS - 1)
        for name in ("forward", "backward"):
            assert [e.user["microbatch"] for e in last if e.name == name] == each
        for name, which in (("send", rank), ("receive", 1 - rank)):
            messages = [e for e in last if e.name == name]
            assert {e.user["pass"] for e in messages} == {("forward", "backward")[which]}
            assert {e.user["stage_index"] for e in messages} == {rank}
            assert sorted(e.user["microbatch"] for e in messages) == sorted(each)
    for trace in read_all(trace_files(tmp_path / "out" / "virtual stages")):
        steps = [e for e in trace.named("step") if e.cat == "pipeline"]
        assert [e.user["microbatches"] for e in steps] == [4] * 3
        last = [e for e in trace.spans if e.user.get("step") == 2]
        for name in ("forward", "backward"):
            assert sorted(e.user["microbatch"] for e in last if e.name == name) == [
                0,
                0,
                1,
                1,
                2,
                2,
                3,
                3,
            ]
    for trace in read_all(trace_files(tmp_path / "out" / "with a loader")):
        steps = [e for e in trace.named("step") if e.cat == "pipeline"]
        places = [(e.user["epoch"], e.user["step"]) for e in trace.named("all_reduce")[1:]]
        assert places == [(e.user["epoch"], e.user["step"]) for e in steps[1:]]
        assert [epoch for epoch, _ in places] == [0] * 11 + [1] * 12
