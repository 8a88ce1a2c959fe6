"""init: the construction of something, under a name that says of what."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


class Dataset:
    @ai.data.item.init
    def __init__(self, length: int) -> None:
        self.items = list(range(length))


@ai.compute.init
class Model:
    """A decorated class: its `__init__` is what is recorded."""


with dftrace_ai.tracing(log_file=OUT / "init"):
    Dataset(10)
    Model()
    with ai.checkpoint.init:
        pass
