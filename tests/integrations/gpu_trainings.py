"""Trainings on a GPU, of which no line knows of tracing: `python gpu_trainings.py [cpu]`.

Prints a line of JSON: by name of the training the digest of all that it came to, bit by bit. With
``cpu`` those that need no GPU, for who writes them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset

STEPS = 4
WIDTH = 16
GPU = torch.device("cuda")
Values = list[torch.Tensor]
Training = Callable[[torch.device], Values]


def digest(values: Values) -> str:
    """Of numbers, to the bit."""
    told = hashlib.sha256()
    for value in values:
        one = value.detach().cpu().contiguous()
        told.update(f"{one.dtype} {tuple(one.shape)}".encode())
        told.update(one.view(-1).view(torch.uint8).numpy().tobytes())
    return told.hexdigest()[:16]


def whole(seed: int, *shape: int) -> torch.Tensor:
    """Small whole numbers, whose sums are exact in any order."""
    return torch.randint(
        -3, 4, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32
    )


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))


def batches(**given: Any) -> DataLoader[Any]:
    numbers = torch.randn(STEPS * 8, WIDTH, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(numbers), batch_size=8, **given)


def trained(
    model: nn.Module,
    inputs: Iterator[Any],
    optimizer: torch.optim.Optimizer | None = None,
    loss_of: Callable[[Any], torch.Tensor] = lambda y: y.square().mean(),
) -> Values:
    """The losses of a training, and the weights after it."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    for x in inputs:
        optimizer.zero_grad()
        loss = loss_of(model(x))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *model.parameters()]


def plain(device: torch.device) -> Values:
    model = network().to(device)
    found = trained(model, (x.to(device) for (x,) in batches()))
    model.eval()
    with torch.no_grad():
        found += [model(x.to(device)) for (x,) in batches()]
    with torch.inference_mode():
        found += [model(x.to(device)).cpu() for (x,) in batches()]
    return found


def pinned(device: torch.device) -> Values:
    model = network().to(device, non_blocking=True)
    inputs = (x.to(device, non_blocking=True) for (x,) in batches(pin_memory=True))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, fused=True)
    found = trained(model, inputs, optimizer)
    host = torch.empty(WIDTH, pin_memory=True)
    host.copy_(found[0].expand(WIDTH), non_blocking=True)
    torch.cuda.synchronize()
    return [*found, host, torch.ones(3).pin_memory().cuda(non_blocking=True)]


class Graph(nn.Module):
    """A network of a graph, whose edges are a sparse buffer."""

    def __init__(self, edges: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("edges", edges)
        self.weight = nn.Parameter(whole(2, WIDTH, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        edges: Any = self.edges
        return torch.sparse.mm(edges, x @ self.weight)


def edges() -> torch.Tensor:
    return (whole(3, 8, 8) > 1).float() + torch.eye(8)


def sparse(device: torch.device) -> Values:
    """Whole numbers throughout: a sum over edges may go in any order."""
    found = []
    for made in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        by_module = Graph(made(edges())).to(device)
        by_hand = Graph(made(edges()).to(device)).to(device)
        for model in (by_module, by_hand):
            optimizer = torch.optim.SGD(model.parameters(), 1.0)
            inputs = (whole(step, 8, WIDTH).to(device) for step in range(2))
            found += trained(model, inputs, optimizer, lambda y: y.sum())
        moved: Any = by_module.edges
        found += [moved.to_dense(), moved.cpu().to_dense(), moved.to("cpu").to_dense()]
    embedded = nn.Embedding(8, 4, sparse=True).to(device)
    with torch.no_grad():
        embedded.weight.copy_(whole(4, 8, 4))
    optimizer = torch.optim.SGD(embedded.parameters(), 1.0)
    found += trained(
        embedded, iter([torch.tensor([1, 2, 2]).to(device)]), optimizer, lambda y: y.sum()
    )
    return found


def nested(device: torch.device) -> Values:
    found = []
    for layout in (torch.strided, torch.jagged):
        model = nn.Linear(WIDTH, 4).to(device)
        with torch.no_grad():
            model.weight.copy_(whole(5, 4, WIDTH))
            model.bias.zero_()
        for step in range(2):
            rows = [whole(step, 3, WIDTH), whole(step + 9, 5, WIDTH)]
            x = torch.nested.nested_tensor(rows, layout=layout).to(device)
            y = model(x)
            parts = y.unbind()
            loss = sum(part.sum() for part in parts)
            loss.backward()
            found += [loss, *parts, *(part.cpu() for part in x.to("cpu").unbind())]
        found.append(model.weight.grad)
    return found


def packed(device: torch.device) -> Values:
    torch.manual_seed(0)
    model = nn.LSTM(WIDTH, 8).to(device)
    packs = (
        pack_sequence([whole(n, size, WIDTH) for size in (5, 3, 1)]).to(device)
        for n in range(STEPS)
    )
    found = trained(model, packs, loss_of=lambda y: pad_packed_sequence(y[0])[0].square().mean())
    back = pack_sequence([whole(0, 2, WIDTH)]).to(device).cpu()
    return [*found, back.data, back.cuda().data] if device.type == "cuda" else [*found, back.data]


class Tagged(torch.Tensor):
    """A subclass that does nothing of its own."""


def subclasses(device: torch.device) -> Values:
    model = network().to(device)
    found = trained(model, (x.as_subclass(Tagged).to(device) for (x,) in batches()))
    meta = nn.Linear(4, 4, device="meta").to_empty(device=device)
    with torch.no_grad():
        meta.weight.copy_(whole(6, 4, 4))
        meta.bias.zero_()
    return [*(one.as_subclass(torch.Tensor) for one in found), meta(whole(7, 2, 4).to(device))]


def mixed(device: torch.device) -> Values:
    """Half precision with scaled gradients, of which one overflows: that step is left out."""
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**14, growth_interval=2)
    found = []
    for step, (x,) in enumerate(batches()):
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16):
            loss = model(x.to(device)).square().mean() * (1e9 if step == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        found += [loss.detach(), torch.tensor(scaler.get_scale())]
    return [*found, *model.parameters()]


def checkpoints(device: torch.device) -> Values:
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    trained(model, (x.to(device) for (x,) in batches()), optimizer)
    buffer = io.BytesIO()
    kept = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "edges": edges().to_sparse().to(device),
    }
    torch.save(kept, buffer)
    buffer.seek(0)
    read = torch.load(buffer, map_location=device)
    buffer.seek(0)
    on_host = torch.load(buffer, map_location="cpu")
    return [*read["model"].values(), *on_host["model"].values(), read["edges"].to_dense()]


def compiled(device: torch.device) -> Values:
    model = network().to(device)
    return trained(torch.compile(model), (x.to(device) for (x,) in batches()))


def compiled_as_graphs(device: torch.device) -> Values:
    model = network().to(device)
    run = torch.compile(model, mode="reduce-overhead")
    return trained(run, (x.to(device) for (x,) in batches()))


def captured(device: torch.device) -> Values:
    """A step that was captured, and is replayed; and a model whose calls are graphs."""
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.01, capturable=True)
    held = torch.zeros(8, WIDTH, device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = model(held).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    found = []
    for (x,) in batches():
        held.copy_(x)
        graph.replay()
        found.append(loss.clone())
    found += [*model.parameters()]
    called = torch.cuda.make_graphed_callables(network().to(device), (held.clone(),))
    return found + trained(called, (x.to(device) for (x,) in batches()))


def streams(device: torch.device) -> Values:
    """The next batch is moved on a stream of its own."""
    model = network().to(device)
    side = torch.cuda.Stream()

    def ahead() -> Iterator[torch.Tensor]:
        coming: torch.Tensor | None = None
        for (x,) in [*batches(pin_memory=True), (torch.zeros(8, WIDTH),)]:
            torch.cuda.current_stream().wait_stream(side)
            ready = coming
            with torch.cuda.stream(side):
                coming = x.to(device, non_blocking=True)
            if ready is not None:
                ready.record_stream(torch.cuda.current_stream())
                yield ready

    return trained(model, ahead())


def ranks_of_one(device: torch.device) -> Values:
    """DDP, and collectives by hand in all ways, with NCCL and a single rank."""
    import torch.distributed as dist

    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(network().to(device))
        found = trained(model, (x.to(device) for (x,) in batches()))
        numbers = whole(8, 1024).to(device)
        dist.all_reduce(numbers)
        works = [dist.all_reduce(numbers, async_op=True) for _ in range(3)]
        for work in works:
            work.wait()
        gathered = [torch.empty_like(numbers)]
        dist.all_gather(gathered, numbers)
        dist.broadcast(numbers, 0)
        dist.barrier()
        found += [numbers, *gathered]
        if device.type == "cuda":
            from torch.distributed.fsdp import fully_shard

            sharded = network().to(device)
            for layer in sharded:
                fully_shard(layer)
            fully_shard(sharded)
            of_shards = trained(sharded, (x.to(device) for (x,) in batches()))
            found += [getattr(one, "_local_tensor", one) for one in of_shards]
    finally:
        dist.destroy_process_group()
    return found


def scheduled(device: torch.device) -> Values:
    """Activations that are computed twice, and gradients of several batches."""
    from torch.utils.checkpoint import checkpoint

    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    found = []
    for step, (x,) in enumerate(batches()):
        y: Any = checkpoint(model, x.to(device), use_reentrant=False)
        loss = functional.mse_loss(y, torch.zeros_like(y))
        loss.backward()
        found.append(loss.detach())
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return [*found, *model.parameters()]


ANYWHERE: tuple[Training, ...] = (
    *(plain, sparse, nested, packed, subclasses, checkpoints, compiled, ranks_of_one, scheduled),
)
ON_A_GPU: tuple[Training, ...] = (pinned, mixed, compiled_as_graphs, captured, streams)


def all_of(device: torch.device) -> dict[str, str]:
    """By name the digest of what each came to, or what it raised."""
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    found = {}
    for training in ANYWHERE if device.type == "cpu" else ANYWHERE + ON_A_GPU:
        torch.manual_seed(0)
        torch._dynamo.reset()
        try:
            found[training.__name__] = digest(training(device))
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
            found[training.__name__] = f"{type(error).__name__}: {str(error)[:200]}"
    return found


if __name__ == "__main__":
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(json.dumps(all_of(torch.device("cpu") if "cpu" in sys.argv else GPU)))
