"""What a span costs in the first burst of a run, and where spans follow each other for long."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

OURS, EMPTY = "dftrace_ai", "empty class"
FIRST, SUSTAINED = 500_000, 1_500_000
TAKEN = ", other cores taken"
LIMITS = {"first": (0.55, None), "sustained": (0.4, 0.7)}


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
    """Time spans back to back, each round in a process that has just begun.

    Args:
        homes: the interpreters; ours is asked alone.
        rounds: each once with all cores free, as far as that is ours, and once with all but one taken.
    """
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
            with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="bench-") as scratch:
                if taken:
                    stack.enter_context(other_cores_taken())
                arguments = ["-m", "bench.spans.bursts_probe", str(FIRST), str(SUSTAINED), scratch]
                answer = run_once(homes.main, arguments, Path(scratch))
            lost += int(answer.get("dropped", 0))
            for name, bench in benches.items():
                for key, label in ((name, OURS), (f"{name}_empty", EMPTY)):
                    series = bench.find(label + taken)
                    if "missing" in answer:
                        series.missing = answer["missing"]
                    else:
                        series.samples.append(float(answer[key]))
    for bench in benches.values():
        bench.notes.append(f"{lost:,} spans were lost.")
    return list(benches.values())
