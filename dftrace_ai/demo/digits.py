"""Scikit-learn's handwritten digits as torch datasets: 1,797 pictures of 8 by 8 grey dots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from dftrace_ai import ai

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Digits", "load_split", "loader"]

SIDE = 8
TEST_SHARE = 0.2


class Digits(Dataset[tuple["Tensor", "Tensor"]]):
    """Pictures and the digits they show; an item is altered a little when `augment` is set.

    Args:
        images: float32 of shape (count, 1, 8, 8), each dot from 0 to 1.
        labels: int64 of shape (count,).
        augment: shift each picture by up to a dot and add noise.
    """

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
    """Load the digits, scale them to 0..1 and split them for training and test.

    Args:
        seed: of the split; the same seed gives the same split.

    Returns:
        1,438 pictures to train with and 359 to test with.
    """
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
    """Return a loader whose worker processes are forked once and kept over the epochs.

    Args:
        digits: what to load.
        batch_size: pictures in a batch.
        workers: processes; 0 loads in the calling one.
        seed: of the order and of the workers' alterations.
        shuffle: load in another order each time.
    """
    return DataLoader(
        digits,
        batch_size=batch_size,
        shuffle=shuffle,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
        persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(seed),
    )
