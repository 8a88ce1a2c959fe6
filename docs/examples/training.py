"""A training loop in PyTorch with its phases annotated."""

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])

torch.manual_seed(0)
images, labels = torch.randn(256, 16), torch.randint(0, 4, (256,))
loader = DataLoader(TensorDataset(images, labels), batch_size=32)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@ai.compute.forward
def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(x), y)


@ai.pipeline.train
def train(epochs: int) -> None:
    for epoch in ai.pipeline.epoch.iter(range(epochs)):
        for step, (x, y) in enumerate(ai.dataloader.fetch.iter(loader)):
            ai.update(epoch=epoch, step=step)
            loss = forward(x, y)
            with ai.compute.backward:
                optimizer.zero_grad()
                loss.backward()
            with ai.compute.step:
                optimizer.step()
            ai.counter("loss", values={"train": loss.item()})


with dftrace_ai.tracing(log_file=OUT / "training") as run:
    train(epochs=2)
print(run.path)
