"""Distributed trainings give the same numbers with their collectives recorded, and show all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch_features
from conftest import read_all, trace_files
from rank_processes import on_ranks

pytest.importorskip("torch.distributed")

STEPS = 4


def trained(rank: int, folder: Path) -> dict[str, Any]:
    """Trains in several ways, each without and with the part; digests of the parameters."""
    import hashlib

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    import dftrace_ai
    from dftrace_ai.integrations.torch import collectives
    from dftrace_ai.run import emitting

    world = dist.get_world_size()

    def net() -> nn.Sequential:
        torch.manual_seed(1)
        relu = nn.ReLU(inplace=True)
        return nn.Sequential(
            nn.Linear(64, 256),
            relu,
            nn.Linear(256, 256),
            relu,
            nn.Linear(256, 256),
            nn.Linear(256, 4),
        )

    def digest(tensors: list[torch.Tensor]) -> str:
        return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()

    def run(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(rank + 10)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()

    def ddp(hook: Any = None, **options: Any) -> str:
        model = DistributedDataParallel(net(), bucket_cap_mb=0.2, **options)
        if hook is not None:
            model.register_comm_hook(None, hook)
        run(model)
        return digest(list(model.parameters()))

    def fsdp() -> str:
        model = net()
        mesh = init_device_mesh("cpu", (world,))
        fully_shard = torch_features.fully_shard()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        run(model)
        return digest([p.to_local() for p in model.parameters()])  # type: ignore[attr-defined]

    ways = {
        "ddp": ddp,
        "hook": lambda: ddp(default_hooks.fp16_compress_hook),
        "views": lambda: ddp(gradient_as_bucket_view=True),
        "static": lambda: ddp(static_graph=True),
        "unused": lambda: ddp(find_unused_parameters=True),
        **({"fsdp": fsdp} if torch_features.has_fully_shard() else {}),
    }
    without = {name: way() for name, way in ways.items()}
    dftrace_ai.initialize(log_file=folder / "trace", rank=rank, world_size=world)
    remove = collectives.install()
    recorded = {}
    for name, way in ways.items():
        emitting.instant(name, category="way")
        recorded[name] = way()
    dist.barrier()
    remove()
    dftrace_ai.finalize()
    return {"without": without, "recorded": recorded}


@pytest.mark.parametrize("world", [2, 3])
def test_training_is_bit_equal_and_each_bucket_is_a_span(tmp_path: Path, world: int) -> None:
    for found in on_ranks(trained, tmp_path, world):
        assert found["recorded"] == found["without"]
    for trace in read_all(trace_files(tmp_path)):
        assert trace.of("B") == []
        events = sorted(trace.of("X", "i"), key=lambda event: event.ts_ns)
        ways: dict[str, Counter[tuple[str, int | None]]] = {}
        for event in events:
            if event.cat == "way":
                last = ways[event.name] = Counter()
            else:
                last[event.name, event.user.get("bytes")] += 1
        # The first backward pass has one bucket, since torch does not know their order before.
        buckets = {bytes: STEPS - 1 for bytes in (267280, 263168, 66560)}
        for way, size in (("ddp", 1), ("views", 1), ("hook", 2)):
            reduced = {n: c for (name, n), c in ways[way].items() if name == "all_reduce" and n}
            assert {n: c for n, c in reduced.items() if c > 1} == {
                n // size: c for n, c in buckets.items()
            }, way
        if torch_features.has_fully_shard():
            fsdp = Counter(name for name, _ in ways["fsdp"].elements())
            assert fsdp["all_gather"] == 2 * STEPS * 4
            assert fsdp["reduce_scatter"] == STEPS * 4


def compiled(rank: int, folder: Path) -> bool:
    """Trains as it is and compiled, where DDP asks for collectives between the graphs."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import dftrace_ai

    def train(compile_it: bool) -> list[float]:
        torch.manual_seed(1)
        model: Any = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
        call = torch.compile(model, backend="aot_eager") if compile_it else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = call(torch.ones(4, 4) * rank).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected, found = train(compile_it=True), []
    torch._dynamo.reset()
    for compile_it in (False, True):
        with dftrace_ai.tracing(
            log_file=folder / f"compiled-{compile_it}", rank=rank, world_size=2
        ):
            dftrace_ai.auto()
            found.append(train(compile_it))
            dftrace_ai.auto.remove()
    return found[1] == expected


def test_collectives_between_the_graphs_of_a_compiled_model(tmp_path: Path) -> None:
    assert on_ranks(compiled, tmp_path) == [True, True]
    counts: dict[str, list[Counter[str]]] = {"compiled-False": [], "compiled-True": []}
    for trace in read_all(trace_files(tmp_path)):
        names = Counter(event.name for event in trace.spans if event.cat == "comm")
        way = next(way for way in counts if trace.path.name.startswith(way))
        counts[way].append(names)
        assert names["all_reduce"] >= STEPS
    assert counts["compiled-True"] == counts["compiled-False"]
    assert counts["compiled-True"][0]["bcast"] > STEPS
