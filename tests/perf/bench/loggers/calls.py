"""What logging costs the training: a call, a step, and a program that logs nothing at the moment."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

from . import peers, step

LOCAL = "local"
ALL = "local, tensorboard, trace and one in a process of its own"
TENSORS = "the same, tensors"
WRITER = "SummaryWriter"
WITHOUT = "without"
AGAIN = "without, again"
TENSORBOARD = "tensorboard"
HANGING = "one that hangs, in a process of its own"
IDLE = "system metrics every 10 s"
METRICS, MANY = 20, 1000
# Some trackers take half a second for a call.
MOST_BESIDE = 7

# By bench: its title and unit, how many of that unit are a second, who takes part, what is wanted.
PLANS: dict[str, tuple[str, str, float, list[str], list[Target]]] = {
    "loggers_call": (
        f"log_iter of {METRICS} metrics, on the thread that calls",
        "us",
        1e6,
        [LOCAL, ALL, TENSORS, WRITER],
        [
            Target(LOCAL, 20.0),
            Target(ALL, 20.0),
            Target(TENSORS, 20.0),
            Target(ALL, 1 / 20, WRITER),
        ],
    ),
    "loggers_many": (
        f"log_iter of {MANY} metrics, on the thread that calls",
        "us",
        1e6,
        [LOCAL, ALL, TENSORS],
        [Target(LOCAL, 1000.0), Target(ALL, 1000.0), Target(TENSORS, 1000.0)],
    ),
    "loggers_step": (
        f"a step of 50 ms of a training, {METRICS} metrics logged in each",
        "ms",
        1e3,
        [WITHOUT, AGAIN, LOCAL, TENSORBOARD, HANGING],
        [
            Target(LOCAL, 1.01, WITHOUT, noise_of=AGAIN),
            Target(TENSORBOARD, 1.01, WITHOUT, noise_of=AGAIN),
            Target(HANGING, 1.01, WITHOUT, noise_of=AGAIN),
        ],
    ),
    "loggers_step_cpu": (
        "the same, processor time of all threads",
        "ms",
        1e3,
        [WITHOUT, AGAIN, LOCAL, TENSORBOARD, HANGING],
        [
            Target(LOCAL, 1.01, WITHOUT),
            Target(TENSORBOARD, 1.01, WITHOUT),
            Target(HANGING, 1.01, WITHOUT),
        ],
    ),
    "loggers_idle": (
        "loggers while nothing is logged: processor time of the process",
        "% of a core",
        100.0,
        [IDLE],
        [Target(IDLE, 0.1)],
    ),
}


def measure(homes: Homes, rounds: int, idle_s: int) -> list[Bench]:
    """Log in one process, everyone in turn; be idle in another one.

    Args:
        homes: the interpreters.
        rounds: how often everyone has his turn.
        idle_s: seconds without a call.
    """
    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:

        def run(part: str, number: int) -> dict[str, Any]:
            arguments = ["-m", "bench.loggers.calls_probe", part, str(number), scratch]
            return run_once(homes.main, arguments, Path(scratch))

        # Who is idle does not disturb the other.
        with ThreadPoolExecutor(2) as pool:
            parts = [pool.submit(run, "calls", rounds), pool.submit(run, "idle", idle_s)]
        for part in parts:
            answer |= part.result()
    benches = []
    for id, (title, unit, factor, contestants, targets) in PLANS.items():
        bench = Bench(id, title, unit, targets=targets, reference=contestants[0])
        for name in contestants:
            samples = [figure * factor for figure in answer.get(id, {}).get(name, [])]
            missing = answer.get("missing", "not run")
            bench.series.append(Series(name, samples=samples, missing=missing))
        benches.append(bench)
    return [
        *benches,
        *step.measure(homes, rounds),
        *peers.measure(homes, min(rounds, MOST_BESIDE)),
    ]
