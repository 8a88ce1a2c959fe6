"""Training of a small convolutional network on the digits, from fetch to checkpoint.

Loaded late, for it needs torch and scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from dftrace_ai import ai

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


SIDE = 8
TEST_SHARE = 0.2


class Digits(Dataset[tuple["Tensor", "Tensor"]]):
    """Pictures of shape (count, 1, 8, 8) and the digits they show; `augment`: altered."""

    @ai.data.item.init
    def __init__(self, images: Tensor, labels: Tensor, *, augment: bool) -> None:
        self.images = images
        self.labels = labels
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        ai.data.item.update(image_idx=index, image_size=SIDE * SIDE)
        with ai.data.item:
            image = self.images[index]
            if self.augment:
                down, right = torch.randint(0, 3, (2,)).tolist()
                image = functional.pad(image, (1, 1, 1, 1))
                image = image[:, down : down + SIDE, right : right + SIDE]
                image = image + 0.05 * torch.randn_like(image)
            return image, self.labels[index]


@ai.data.preprocess
def load_split(seed: int) -> tuple[Digits, Digits]:
    """Load the digits, scale them to 0..1 and split them for training and test."""
    bunch = load_digits()
    images = torch.as_tensor(bunch.images, dtype=torch.float32).div_(16).unsqueeze(1)
    labels = torch.as_tensor(bunch.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    tests = int(len(labels) * TEST_SHARE)
    chosen, held_out = order[tests:], order[:tests]
    return (
        Digits(images[chosen], labels[chosen], augment=True),
        Digits(images[held_out], labels[held_out], augment=False),
    )


def loader(
    digits: Digits, *, batch_size: int, workers: int, seed: int, shuffle: bool
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Return a loader whose worker processes are forked once and kept over the epochs."""
    return DataLoader(
        digits,
        batch_size=batch_size,
        shuffle=shuffle,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
        persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(seed),
    )


CLASSES = 10


@dataclass(frozen=True)
class Progress:
    """Where a training stands after a batch."""

    epoch: int  # from 0, as the step
    step: int
    steps: int  # of an epoch
    loss: float  # cross entropy of the batch


@dataclass
class Result:
    """What a training reached."""

    losses: list[float] = field(default_factory=list)  # mean cross entropy of each epoch
    # Share of the test pictures that are told right behind each epoch, 0 to 1.
    accuracies: list[float] = field(default_factory=list)
    steps: int = 0  # batches in all

    @property
    def best_accuracy(self) -> float:
        """The best of the accuracies; 0 before the first."""
        return max(self.accuracies, default=0.0)


class DigitsNet(nn.Module):
    """Two convolutions and two linear layers; about 39,000 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of shape (batch, 10) for pictures of shape (batch, 1, 8, 8)."""
        logits: Tensor = self.layers(images)
        return logits


class Checkpoint:
    """Keeps the weights of the best epoch, in a file where a directory is given."""

    @ai.checkpoint.init
    def __init__(self, directory: Path | None) -> None:
        self.path = directory / "digits.pt" if directory else None
        self.weights: dict[str, Tensor] = {}
        if directory:
            directory.mkdir(parents=True, exist_ok=True)

    @ai.checkpoint.capture
    def capture(self, model: nn.Module) -> None:
        """Copy the weights, and write them."""
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}
        if self.path:
            # The directory may be shared: a new file takes the place of whatever has the name.
            with TemporaryDirectory(dir=self.path.parent, prefix=".digits-") as private:
                new = Path(private, "digits.pt")
                new.touch(mode=0o600)
                torch.save(self.weights, new)
                new.replace(self.path)


class Trainer:
    """The model, its optimizer and the annotated phases of a step."""

    @ai.compute.init
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.model = DigitsNet().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)

    @ai.device.transfer
    def transfer(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Copy a batch to the device."""
        return images.to(self.device), labels.to(self.device)

    @ai.compute.forward
    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch."""
        return functional.cross_entropy(self.model(images), labels)

    @ai.compute.backward
    def backward(self, loss: Tensor) -> None:
        """Work out the gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]

    @ai.compute.step
    def step(self) -> None:
        """Move the weights."""
        self.optimizer.step()

    @ai.pipeline.evaluate
    def evaluate(self, batches: DataLoader[tuple[Tensor, Tensor]]) -> float:
        """Return the share of pictures told right, 0 to 1."""
        right = seen = 0
        self.model.eval()
        with torch.inference_mode():
            for images, labels in ai.dataloader.fetch.iter(batches):
                on_device, wanted = self.transfer(images, labels)
                with ai.compute.forward:
                    logits = self.model(on_device)
                right += int((logits.argmax(dim=1) == wanted).sum())
                seen += len(labels)
        self.model.train()
        return right / seen


@ai.pipeline.train
def train(
    epochs: int = 5,
    workers: int = 2,
    seed: int = 0,
    *,
    batch_size: int = 32,
    device: str | torch.device = "cpu",
    checkpoint_dir: Path | None = None,
    on_batch: Callable[[Progress], None] | None = None,
) -> Result:
    """Train the network on the digits, alike for the same arguments; each phase is annotated."""
    torch.manual_seed(seed)
    digits, tests = load_split(seed)
    batches = loader(digits, batch_size=batch_size, workers=workers, seed=seed, shuffle=True)
    test_batches = loader(tests, batch_size=256, workers=0, seed=seed, shuffle=False)
    trainer = Trainer(torch.device(device))
    checkpoint = Checkpoint(checkpoint_dir)
    result = Result()
    for epoch in ai.pipeline.epoch.iter(range(epochs)):
        ai.update(epoch=epoch)
        total = 0.0
        for step, (images, labels) in enumerate(ai.dataloader.fetch.iter(batches)):
            ai.compute.update(step=step)
            on_device, wanted = trainer.transfer(images, labels)
            loss = trainer.forward(on_device, wanted)
            trainer.backward(loss)
            trainer.step()
            value = loss.item()
            ai.counter("loss", {"train": value})
            total += value
            result.steps += 1
            if on_batch:
                on_batch(Progress(epoch, step, len(batches), value))
        result.losses.append(total / len(batches))
        best = result.best_accuracy
        accuracy = trainer.evaluate(test_batches)
        result.accuracies.append(accuracy)
        ai.counter("accuracy", {"test": accuracy})
        if accuracy > best:
            ai.instant("best accuracy", args={"accuracy": accuracy, "epoch": epoch})
            checkpoint.capture(trainer.model)
    return result
