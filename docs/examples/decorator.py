"""Decorators without arguments: every call is one event."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


@ai.compute.forward
def forward(batch: list[float]) -> float:
    return sum(batch)


class Trainer:
    @ai.compute.step
    def step(self) -> None:
        """A method."""

    @staticmethod
    @ai.compute.backward
    def backward() -> None:
        """A static method; the order of the two decorators does not matter."""

    @ai.checkpoint.restart
    @classmethod
    def load(cls) -> "Trainer":
        return cls()


with dftrace_ai.tracing(log_file=OUT / "decorator"):
    trainer = Trainer.load()
    for _ in range(2):
        forward([1.0, 2.0])
        trainer.backward()
        trainer.step()
