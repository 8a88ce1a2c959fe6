"""derive: a name of your own below a name of the vocabulary."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])

attention = ai.compute.forward.derive(name="attention")


@ai.data.preprocess.derive(name="collate")
def collate(items: list[int]) -> list[int]:
    return items


with dftrace_ai.tracing(log_file=OUT / "derive"):
    collate([1, 2])
    ai.compute.forward.update(epoch=1)  # reaches what is derived from it, too
    with ai.compute.forward, attention:
        attention.update(heads=8)
    ai.compute.disable()
    with attention:
        pass
