"""What a step more costs who judges a run, or compares two: bytes of memory, and processor time.

`python -m bench.files.long_runs STEPS DIR` records one: ten loops of a wait and three phases in a block.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import dftrace_ai
from bench.files.reading import cost_of
from bench.processes import Homes, run_once
from bench.series import Bench, Series, Target
from dftrace_ai import ai

WHY, DIFF = "dftrace why", "dftrace diff"
LOOPS = 10
# What a run takes whatever its length is taken from one of so much of the steps.
SHORT = 16


def measure(homes: Homes, steps: int, rounds: int) -> list[Bench]:
    """Judge and compare a short run and a long one, and return what they differ by for a step."""
    memory = Bench(
        "long", f"a run of {steps:,} steps: memory of a step", "B", targets=[Target(WHY, 100.0)]
    )
    memory.targets.append(Target(DIFF, 100.0))
    memory.notes.append(f"Five spans a step; beyond the peak of a run of {steps // SHORT:,} steps.")
    cpu = Bench("long_cpu", f"a run of {steps:,} steps: processor time of all threads", "s")
    for bench in (memory, cpu):
        bench.series += [Series(WHY), Series(DIFF)]
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        place = Path(scratch)
        folders: dict[int, list[str]] = {}
        for length in (steps // SHORT, steps):
            for name in "ab":
                folder = place / f"{length}{name}"
                words = ["-m", "bench.files.long_runs", str(length), str(folder)]
                run_once(homes.main, words, place)
                folders.setdefault(length, []).append(str(folder))
        for _ in range(rounds):
            for at, (word, count) in enumerate((("why", 1), ("diff", 2))):
                short, long = (
                    cost_of([homes.main, "-m", "dftrace_ai.cli", word, *some[:count]], place)
                    for some in folders.values()
                )
                if fault := short.fault or long.fault:
                    memory.series[at].missing = cpu.series[at].missing = fault
                    continue
                more = (long.peak_mib - short.peak_mib) * 2**20
                memory.series[at].samples.append(more / (steps - steps // SHORT))
                cpu.series[at].samples.append(long.cpu_s)
    return [memory, cpu]


def main() -> None:
    steps, folder = int(sys.argv[1]), Path(sys.argv[2])
    with dftrace_ai.tracing(log_file=folder / "trace", overflow="wait") as run, ai.pipeline.train:
        for _ in range(LOOPS):
            for _ in ai.dataloader.fetch.iter(range(steps // LOOPS)):
                with ai.compute.forward:
                    pass
                with ai.compute.backward:
                    pass
                with ai.compute.step:
                    pass
    print(json.dumps({"path": run.path}))


if __name__ == "__main__":
    main()
