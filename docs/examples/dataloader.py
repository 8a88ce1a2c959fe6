"""A DataLoader with worker processes: what the workers do is in the trace."""

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


class Squares(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    @ai.data.item
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index**2)


with dftrace_ai.tracing(log_file=OUT / "dataloader"):
    loader = DataLoader(Squares(), batch_size=2, num_workers=2)
    for batch in ai.dataloader.fetch.iter(loader):
        with ai.compute.forward:
            batch.sum()
