"""Trainings as they come, a step at a time: a small transformer, annotated phases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils.data import DataLoader

Step = Callable[[], None]

WIDTH, HEADS, LAYERS, LETTERS, LENGTH = 96, 4, 4, 256, 24
ITEMS, TRANSFORMS = 8, 6
WORK_S = 0.005


class Block(nn.Module):
    """Attention and a perceptron, each added to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_rest = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.all_three, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.rest = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return what the next block takes, of the same shape."""
        batch, length, _ = x.shape
        apart = self.all_three(self.before_attention(x)).view(batch, length, 3, HEADS, -1)
        query, key, value = apart.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.rest(self.before_rest(x))


def small_transformer() -> nn.Module:
    """Return a small transformer."""
    return nn.Sequential(
        nn.Embedding(LETTERS, WIDTH),
        *(Block() for _ in range(LAYERS)),
        nn.LayerNorm(WIDTH),
        nn.Linear(WIDTH, LETTERS),
    )


def transformer() -> tuple[nn.Module, Step]:
    """Return a small transformer, and a step of its training without any annotation."""
    torch.manual_seed(0)
    model = small_transformer()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    texts: Any = torch.randint(0, LETTERS, (4096, LENGTH + 1))

    def batches() -> Iterator[Tensor]:
        while True:
            yield from DataLoader(texts, batch_size=2)

    coming = batches()

    def step() -> None:
        batch = next(coming).to("cpu")
        optimizer.zero_grad()
        found = model(batch[:, :-1])
        F.cross_entropy(found.flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()

    return model, step


def annotated(ai: Any) -> Step:
    """Return a step of 22 spans and an update, in which 5 ms are worked."""
    left, right = torch.randn(128, 128), torch.randn(128, 128)

    def work(part: float) -> None:
        end_s = time.thread_time() + WORK_S * part
        while time.thread_time() < end_s:
            torch.mm(left, right)

    read = ai.data.item(lambda: work(0.02))
    prepare = ai.data.preprocess(lambda: work(0.02))
    numbers = iter(range(10**9))

    def step() -> None:
        ai.update(epoch=1, step=next(numbers))
        with ai.pipeline.train:
            with ai.dataloader.fetch:
                for _ in range(ITEMS):
                    read()
                for _ in range(TRANSFORMS):
                    prepare()
                with ai.data:
                    work(0.02)
            with ai.device.transfer:
                work(0.02)
            with ai.compute.forward:
                work(0.28)
            with ai.compute.backward, ai.comm.all_reduce:
                work(0.3)
            with ai.compute.step:
                work(0.08)

    return step


class Named(record_function):
    """A tree of names for torch.profiler, whose spans have no arguments."""

    def __getattr__(self, name: str) -> Named:
        made = Named(name)
        setattr(self, name, made)  # found at once the next time
        return made

    def update(self, **_: object) -> None:
        """Take arguments."""


class Nothing:
    """A tree of nodes that records nothing: empty context managers, functions as they are."""

    def __getattr__(self, _: str) -> Nothing:
        return self

    def __call__(self, function: Step) -> Step:
        return function

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, **_: object) -> None:
        """Take arguments."""
