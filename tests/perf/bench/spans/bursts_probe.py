"""Times spans that follow each other without a pause: `bursts_probe FIRST SUSTAINED DIR`.

In a run that has just begun, so many in the first burst, and so many more once those are written. The
last line has nanoseconds of the thread's processor time for each, an empty loop's taken off, those of an
empty context manager of Python's beside them, and how many spans were lost.
"""

from __future__ import annotations

import gc
import json
import sys
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from time import thread_time_ns
from typing import Any

import dftrace_ai
from bench.contestants.plain import EmptyContext
from bench.spans.loops import Loop, private
from dftrace_ai import ai

WARM = 500


def nothing(n: int) -> int:
    """Go round n times; return nanoseconds."""
    start = thread_time_ns()
    for _ in repeat(None, n):
        pass
    return thread_time_ns() - start


def entering(context: AbstractContextManager[Any]) -> Loop:
    """Return what enters and leaves the context, and returns nanoseconds."""

    def run(n: int, context: AbstractContextManager[Any] = context) -> int:
        start = thread_time_ns()
        for _ in repeat(None, n):
            with context:
                pass
        return thread_time_ns() - start

    return private(run)


def main() -> None:
    """Print what each takes."""
    first, sustained, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    gc.disable()
    empty = entering(EmptyContext())
    empty(WARM)
    nothing(WARM)
    took: dict[str, float] = {}
    with dftrace_ai.tracing(log_file=folder / "spans") as run:
        ai.update(epoch=1, step=2)
        recorded = entering(ai.compute.forward)
        # Not as many as fill the first unit of the spool: what comes then is in the burst.
        recorded(WARM)
        for name, n in (("first", first), ("sustained", sustained)):
            bare = nothing(n)
            took[name] = (recorded(n) - bare) / n
            run.flush()
            took[f"{name}_empty"] = (empty(n) - bare) / n
        dropped = run.stats()["dropped"]
    print(json.dumps(took | {"dropped": dropped}))


if __name__ == "__main__":
    main()
