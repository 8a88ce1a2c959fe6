"""A small CNN on scikit-learn's handwritten digits, trained plainly and trained annotated.

The plain and the annotated loop are written out twice: an untraced run must not carry so much as
an empty context manager.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

BATCH = 64
TRAIN_ITEMS = 1472

Item = tuple[Tensor, Tensor]


class Digits(Dataset[Item]):
    """The 8 x 8 digits as float tensors."""

    def __init__(self, *, training: bool) -> None:
        digits: Any = load_digits()
        chosen = slice(0, TRAIN_ITEMS) if training else slice(TRAIN_ITEMS, None)
        self.images = torch.tensor(digits.images[chosen] / 16.0, dtype=torch.float32).unsqueeze(1)
        self.labels = torch.tensor(digits.target[chosen], dtype=torch.long)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Item:
        return self.images[index], self.labels[index]


def new_model() -> nn.Module:
    """Return the network, the same weights each time."""
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def loader(items: Dataset[Item], batch: int = BATCH) -> DataLoader[Item]:
    """Return a loader in this process; its order is seeded."""
    return DataLoader(items, batch_size=batch, shuffle=True)


def train_plain(data: Digits, held_out: Digits, epochs: int) -> float:
    """Train without any annotation; return the accuracy on the held-out digits."""
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    device = torch.device("cpu")
    accuracy = 0.0
    for _epoch in range(epochs):
        for _step, batch in enumerate(loader(data)):
            images, labels = batch[0].to(device), batch[1].to(device)
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = sum(
                int((model(images).argmax(1) == labels).sum())
                for images, labels in loader(held_out, 256)
            )
        accuracy = right / len(held_out)
        torch.save(model.state_dict(), io.BytesIO())
    return accuracy


def annotated_digits(ai: Any) -> type[Digits]:
    """Return the data set with its items annotated."""

    class AnnotatedDigits(Digits):
        @ai.data.item
        def __getitem__(self, index: int) -> Item:
            return self.images[index], self.labels[index]

    return AnnotatedDigits


def train_annotated(ai: Any, data: Digits, held_out: Digits, epochs: int) -> float:
    """Train with every phase annotated; return the accuracy on the held-out digits."""
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    device = torch.device("cpu")
    accuracy = 0.0
    with ai.pipeline.train:
        for epoch in ai.pipeline.epoch.iter(range(epochs)):
            for step, batch in ai.dataloader.fetch.iter(enumerate(loader(data))):
                ai.update(epoch=epoch, step=step)
                with ai.device.transfer:
                    images, labels = batch[0].to(device), batch[1].to(device)
                with ai.compute:
                    with ai.compute.forward:
                        loss = criterion(model(images), labels)
                    with ai.compute.backward:
                        optimizer.zero_grad()
                        loss.backward()
                    with ai.compute.step:
                        optimizer.step()
            with ai.pipeline.evaluate, torch.no_grad():
                right = sum(
                    int((model(images).argmax(1) == labels).sum())
                    for images, labels in ai.dataloader.fetch.iter(loader(held_out, 256))
                )
            accuracy = right / len(held_out)
            with ai.checkpoint.capture:
                torch.save(model.state_dict(), io.BytesIO())
    return accuracy
