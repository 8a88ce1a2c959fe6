"""Decorators with arguments: they stand in every event of the function."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


@ai.compute.forward(args={"precision": "bf16", "shape": [32, 128]})
def forward(batch: list[float]) -> float:
    return sum(batch)


@ai.data.item(epoch=0, image_size=64.0, source="digits")
def load(index: int) -> list[float]:
    return [float(index)]


with dftrace_ai.tracing(log_file=OUT / "decorator_arguments"):
    for index in range(3):
        forward(load(index))
