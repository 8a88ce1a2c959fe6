"""What samples of lines cost at their usual rate: a step of the thread that trains, and a core."""

from __future__ import annotations

import sys

from bench.processes import Homes, probe
from bench.series import Bench, Series, Target

OURS, AGAIN = "dftrace_ai", "nobody"
HZ = 20
MOST_PERCENT = 0.3


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Train in windows with and without samples, both with all else recorded."""
    step = Bench(
        "lines_step",
        "a small training, 20 samples of lines a second: processor time that a step takes more",
        "%",
        targets=[Target(OURS, MOST_PERCENT)],
        notes=[
            "The thread that trains alone; windows of half a second: without, with, with, without."
        ],
    )
    core = Bench(
        "lines_core",
        "the thread that takes 20 samples of lines a second: its share of a core",
        "%",
        targets=[Target(OURS, MOST_PERCENT)],
        notes=["As the kernel's scheduler counts it, of the same windows."],
    )
    for name, hz in ((OURS, HZ), (AGAIN, 0)):
        print(f"  lines: {name}", file=sys.stderr)
        found = probe(homes.main, "steps.sampled_probe", rounds, hz)
        missing = found.get("missing", "")
        step.series.append(Series(name, found.get("step", []), missing=missing))
        if hz:
            core.series.append(Series(name, found.get("core", []), missing=missing))
    return [step, core]
