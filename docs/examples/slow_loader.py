"""A training on handwritten digits whose loader cannot keep up, on purpose."""

import sys
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


class Digits(Dataset):
    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        self.images, self.labels = torch.tensor(images).float() / 16, torch.tensor(labels)

    def __len__(self) -> int:
        return 640

    @ai.data.item
    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.002)  # a decoder that takes its time
        return self.images[index], self.labels[index]


def train(epochs: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = DataLoader(Digits(), batch_size=16, num_workers=1, persistent_workers=True)
    for epoch in ai.pipeline.epoch.iter(range(epochs)):
        for step, (x, y) in enumerate(ai.dataloader.fetch.iter(batches)):
            ai.update(epoch=epoch, step=step)
            with ai.compute.forward:
                loss = torch.nn.functional.cross_entropy(model(x), y)
            with ai.compute.backward:
                optimizer.zero_grad()
                loss.backward()
            with ai.compute.step:
                optimizer.step()


if __name__ == "__main__":
    with dftrace_ai.tracing(log_file=OUT / "digits"):
        train(epochs=2)
