"""Threads: nodes are shared, every thread has its own track and its own nesting."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


@ai.data.item
def load(index: int) -> int:
    with ai.data.preprocess:
        return index


def fetch() -> int:
    with ai.dataloader.fetch, ThreadPoolExecutor(4, thread_name_prefix="loader") as pool:
        return sum(pool.map(load, range(100)))


with dftrace_ai.tracing(log_file=OUT / "threads"):
    print(fetch())
