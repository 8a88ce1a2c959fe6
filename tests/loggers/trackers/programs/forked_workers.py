"""Trains with a loader whose workers are forked beside a live tracker, anew in each epoch."""

from __future__ import annotations

from typing import Any

WORKERS, BATCHES = 4, 4


def train(loggers: Any, logged: list[tuple[int, float]], epochs: int) -> None:
    """Log some values, spread over epochs, in each of which four workers are forked."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Items(Dataset[int]):
        def __len__(self) -> int:
            return 2 * BATCHES

        def __getitem__(self, index: int) -> int:
            loggers.log_iter({"loss": -5000.0}, step=index)
            return index

    loggers.flush()  # it has begun
    for epoch in range(epochs):
        loader = DataLoader(
            Items(), batch_size=2, num_workers=WORKERS, multiprocessing_context="fork"
        )
        begin, end = (one * len(logged) // epochs for one in (epoch, epoch + 1))
        for step, value in logged[begin:end]:
            loggers.log_iter({"loss": value}, step=step)
        for number, batch in enumerate(loader):
            assert torch.equal(batch, torch.tensor([2 * number, 2 * number + 1]))
            loggers.log_iter({"batches": 1.0}, step=BATCHES * epoch + number)
