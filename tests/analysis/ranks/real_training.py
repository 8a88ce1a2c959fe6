"""A small training of several ranks on gloo, of which one may be late: run by `torchrun`.

Nothing in it knows of traces: `dftrace run` records what it does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 8
WIDTH = 512
CLASSES = 4


@dataclass
class Late:
    """Who is late, where, and how long."""

    where: str
    rank: int
    ms: float

    def here(self, where: str) -> None:
        """Sleeps, if this is where and who."""
        if self.where == where and self.rank == dist.get_rank():
            time.sleep(self.ms / 1e3)


class Items(Dataset[Any]):
    """Random items."""

    def __init__(self, count: int, late: Late) -> None:
        self.count = count
        self.late = late

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index % BATCH == 0:
            self.late.here("loader")
        return torch.randn(64), index % CLASSES


class _LateBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, late: Late) -> Any:
        ctx.late = late
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.late.here("backward")
        return grad, None


class Block(nn.Module):
    """A layer, with a second one as in a transformer's feed-forward part."""

    def __init__(self, late: Late | None = None) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)
        self.late = late

    def forward(self, x: Any) -> Any:
        if self.late is not None:
            self.late.here("forward")
            x = _LateBackward.apply(x, self.late)
        return self.down(self.up(x).relu())


def model_of(late: Late) -> nn.Sequential:
    """The model; somebody may be late in its second block."""
    return nn.Sequential(
        nn.Linear(64, WIDTH), Block(), Block(late), Block(), nn.Linear(WIDTH, CLASSES)
    )


def ddp(model: nn.Sequential) -> nn.Module:
    """Gradients reduced by DistributedDataParallel, in several buckets."""
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)


def fsdp(model: nn.Sequential) -> nn.Module:
    """Parameters sharded by FSDP2."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def tensor(model: nn.Sequential) -> nn.Module:
    """Each block's layers split over all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, Block):
            parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def alone(model: nn.Sequential) -> nn.Module:
    """A model whose gradients the loop itself reduces."""
    return model


WRAPPED: dict[str, Callable[[nn.Sequential], nn.Module]] = {
    "ddp": ddp,
    "fsdp": fsdp,
    "tensor": tensor,
    "own": alone,
}


def train(kind: str, late: Late, steps: int) -> None:
    """Trains for so many steps."""
    model = WRAPPED[kind](model_of(late))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of = nn.functional.cross_entropy
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])] if kind == "own" else []
    for x, y in DataLoader(Items(BATCH * steps, late), batch_size=BATCH):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        late.here("nowhere")
        if pairs:
            dist.all_reduce(torch.ones(1000), group=pairs[dist.get_rank() // 2])
            for weights in model.parameters():
                dist.all_reduce(weights.grad)
        optimizer.step()


def pipeline(late: Late, steps: int) -> None:
    """A stage of the model on each rank, with four micro-batches a step."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, count = dist.get_rank(), dist.get_world_size()
    blocks: list[nn.Module] = [Block(), Block(late)]
    first: list[nn.Module] = [nn.Linear(64, WIDTH)] if rank == 0 else []
    last: list[nn.Module] = [nn.Linear(WIDTH, CLASSES)] if rank == count - 1 else []
    module = nn.Sequential(*first, *blocks, *last)
    stage = PipelineStage(module, rank, count, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for x, y in DataLoader(Items(4 * BATCH * steps, late), batch_size=4 * BATCH):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif rank == count - 1:
            schedule.step(target=y)
        else:
            schedule.step()
        optimizer.step()


def interleaved(late: Late, steps: int) -> None:
    """Two stages of the model on each rank, that of the late one in the second of its own."""
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    rank, count = dist.get_rank(), dist.get_world_size()
    stages = []
    for chunk in (0, 1):
        number = chunk * count + rank
        first: list[nn.Module] = [nn.Linear(64, WIDTH)] if number == 0 else []
        last: list[nn.Module] = [nn.Linear(WIDTH, CLASSES)] if number == 2 * count - 1 else []
        module = nn.Sequential(*first, Block(late if chunk else None), *last)
        stages.append(PipelineStage(module, number, 2 * count, torch.device("cpu")))
    loss_of = nn.functional.cross_entropy
    schedule = ScheduleInterleaved1F1B(stages, n_microbatches=2 * count, loss_fn=loss_of)
    weights = [one for stage in stages for one in stage.submod.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for x, y in DataLoader(Items(2 * count * BATCH * steps, late), batch_size=2 * count * BATCH):
        optimizer.zero_grad()
        given = (x,) if rank == 0 else ()
        schedule.step(*given, target=y) if rank == count - 1 else schedule.step(*given)
        optimizer.step()


PIPELINES: dict[str, Callable[[Late, int], None]] = {
    "pipeline": pipeline,
    "interleaved": interleaved,
}


def main() -> None:
    """Reads what is to be trained, and trains it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=[*WRAPPED, *PIPELINES])
    parser.add_argument("--where", default="none")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ms", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    late = Late(given.where, given.rank, given.ms)
    run = PIPELINES.get(given.kind) or partial(train, given.kind)
    run(late, given.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
