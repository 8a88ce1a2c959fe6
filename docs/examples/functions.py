"""dft_fn: a category of your own, with the methods that users of dftracer know."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import dft_fn

OUT = Path(sys.argv[1])

storage = dft_fn("storage")


class Reader:
    @storage.log_init
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch  # of self: stands in the events of its methods

    @storage.log
    def read(self, step: int) -> int:  # of the call: stands in its event
        return step

    @storage.log_static
    @staticmethod
    def check() -> None: ...


with dftrace_ai.tracing(log_file=OUT / "functions"):
    reader = Reader(epoch=3)
    reader.read(step=5)
    reader.check()

    for _ in storage.iter(range(2), name="scan", iter_name="block"):
        pass

    with dft_fn("storage", name="flush") as block:
        block.update(args={"bytes": 512})

    storage.log_metadata("backend", "local disk")
