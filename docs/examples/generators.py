"""Generators: one event for each time they run, none for the time they wait."""

import sys
from collections.abc import Iterator
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


@ai.data.preprocess
def batches(count: int) -> Iterator[int]:
    yield from range(count)


with dftrace_ai.tracing(log_file=OUT / "generators"):
    for _batch in batches(2):  # the end of the generator is no event
        with ai.compute.forward:
            pass
