"""What a span costs in the first burst of a run, and where spans follow each other for long.

`python -m bench.spans.bursts FIRST SUSTAINED DIR` times both in a run that has just begun. The last line has
nanoseconds of the thread's processor time for each, an empty loop's taken off, those of an empty context
manager of Python's beside them, and how many spans were lost.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from time import thread_time_ns

import dftrace_ai
from bench.processes import Homes, probe
from bench.series import Bench, Series, Target
from dftrace_ai import ai

from .contestants import EmptyContext
from .loops import timed, with_loop

OURS, EMPTY = "dftrace_ai", "empty class"
FIRST, SUSTAINED = 500_000, 1_500_000
TAKEN = ", other cores taken"
LIMITS = {"first": (0.55, None), "sustained": (0.4, 0.7)}
WARM = 500


@contextmanager
def other_cores_taken() -> Iterator[None]:
    """Have processes of somebody else's use all cores but one."""
    with ExitStack() as stack:
        for _ in range(len(os.sched_getaffinity(0)) - 1):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        yield


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Time spans back to back, each round in a process that has just begun: once with all cores free, as
    far as that is ours, and once with all but one taken."""
    titles = {
        "first": f"the first {FIRST:,} spans of a run back to back: the thread's processor time",
        "sustained": f"{SUSTAINED:,} more back to back: the thread's processor time",
    }
    benches = {
        name: Bench(f"bursts_{name}", title, "ns", reference=EMPTY)
        for name, title in titles.items()
    }
    for name, bench in benches.items():
        bench.series = [Series(label + taken) for taken in ("", TAKEN) for label in (EMPTY, OURS)]
        for taken, limit in zip(("", TAKEN), LIMITS[name], strict=True):
            if limit:
                bench.targets.append(Target(OURS + taken, limit, EMPTY + taken))
    lost = 0
    for number in range(rounds):
        print(f"  bursts ({number + 1}/{rounds})", file=sys.stderr)
        for taken in ("", TAKEN):
            with other_cores_taken() if taken else nullcontext():
                answer = probe(homes.main, "spans.bursts", FIRST, SUSTAINED)
            lost += int(answer.get("dropped", 0))
            for name, bench in benches.items():
                bench.take(OURS + taken, answer, name)
                bench.take(EMPTY + taken, answer, f"{name}_empty")
    for bench in benches.values():
        bench.notes.append(f"{lost:,} spans were lost.")
    return list(benches.values())


def main() -> None:
    first, sustained, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    gc.disable()
    nothing = timed("pass", clock=thread_time_ns)
    empty = with_loop(EmptyContext(), clock=thread_time_ns)
    empty(WARM)
    nothing(WARM)
    took: dict[str, float] = {}
    with dftrace_ai.tracing(log_file=folder / "spans") as run:
        ai.update(epoch=1, step=2)
        recorded = with_loop(ai.compute.forward, clock=thread_time_ns)
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
