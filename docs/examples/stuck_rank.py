"""Two ranks, one of which waits for its third batch for ever."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1]).absolute()
RANKS = 2


def batches(rank: int) -> Iterator[torch.Tensor]:
    for number in range(1000):
        if rank == 1 and number == 2:
            threading.Event().wait()  # a storage that does not answer any more
        yield torch.full((4,), float(number))


def train(rank: int) -> None:
    dftrace_ai.initialize(log_file=OUT / "training", rank=rank, world_size=RANKS)
    meeting = f"file://{OUT}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    with ai.pipeline.train:
        for epoch in ai.pipeline.epoch.iter(range(3)):
            for step, batch in enumerate(ai.dataloader.fetch.iter(batches(rank))):
                ai.update(epoch=epoch, step=step)
                with ai.compute.backward:
                    gradient = batch * 2
                with ai.comm.all_reduce:
                    dist.all_reduce(gradient)


if __name__ == "__main__":
    dftrace_ai.initialize(log_file=OUT / "training")
    torch.multiprocessing.spawn(train, nprocs=RANKS)
