"""Context managers without arguments: a block is one event, blocks inside are its children."""

import contextlib
import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


def descend(depth: int) -> None:
    with ai.compute:  # a category is a node like any other; it may be open inside itself
        if depth > 1:
            descend(depth - 1)


def save() -> None:
    with ai.checkpoint.capture:
        raise OSError("no space left")


with dftrace_ai.tracing(log_file=OUT / "context_manager"):
    with ai.compute.backward, ai.comm.all_reduce:
        pass
    descend(3)
    with contextlib.suppress(OSError):
        save()  # its event has the argument error, the name of the exception's type
