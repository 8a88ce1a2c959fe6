"""A small transformer that learns to go on with a text; the text comes with Python."""

from collections.abc import Iterator
from pydoc_data import topics

import torch
from torch import Tensor, nn

CONTEXT = 32
BATCH = 16
WIDTH = 64


class Block(nn.Module):
    """Attention and a feed-forward network, each around its own normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, num_heads=4, batch_first=True)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class SmallTransformer(nn.Module):
    """Two blocks between bytes and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.places = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)
        future = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        self.register_buffer("future", future)

    def forward(self, text: Tensor) -> Tensor:
        x = self.bytes(text) + self.places
        for block in self.blocks:
            x = block(x, self.future)
        return self.head(self.norm(x))


def batches(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces of Python's own documentation, and what comes next."""
    text = "".join(topics.topics.values()).encode()
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=generator)
        pieces = torch.stack([data[i : i + CONTEXT + 1] for i in starts])
        yield pieces[:, :-1], pieces[:, 1:]


def loss_of(model: SmallTransformer, text: Tensor, following: Tensor) -> Tensor:
    """Cross entropy of the next byte."""
    return nn.functional.cross_entropy(model(text).flatten(0, 1), following.flatten())
