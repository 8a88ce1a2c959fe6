"""What logging costs the training: a call, a step, and a program that logs nothing at the moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.processes import Homes, probe
from bench.series import Bench, Target

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
            *(Target(name, 20.0) for name in (LOCAL, ALL, TENSORS)),
            Target(ALL, 1 / 20, WRITER),
        ],
    ),
    "loggers_many": (
        f"log_iter of {MANY} metrics, on the thread that calls",
        "us",
        1e6,
        [LOCAL, ALL, TENSORS],
        [Target(name, 1000.0) for name in (LOCAL, ALL, TENSORS)],
    ),
    "loggers_step": (
        f"a step of 50 ms of a training, {METRICS} metrics logged in each",
        "ms",
        1e3,
        [WITHOUT, AGAIN, LOCAL, TENSORBOARD, HANGING],
        [Target(name, 1.01, WITHOUT, noise_of=AGAIN) for name in (LOCAL, TENSORBOARD, HANGING)],
    ),
    "loggers_step_cpu": (
        "the same, processor time of all threads",
        "ms",
        1e3,
        [WITHOUT, AGAIN, LOCAL, TENSORBOARD, HANGING],
        [Target(name, 1.01, WITHOUT) for name in (LOCAL, TENSORBOARD, HANGING)],
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
    """Log in one process, everyone in turn; be idle in another one, seconds long, without a call."""
    # Who is idle does not disturb the other.
    with ThreadPoolExecutor(2) as pool:
        parts = [
            pool.submit(probe, homes.main, "loggers.calls_probe", part, number)
            for part, number in (("calls", rounds), ("idle", idle_s))
        ]
    answer: dict[str, Any] = {}
    for part in parts:
        answer |= part.result()
    missing = answer.get("missing", "not run")
    benches = [
        Bench(id, title, unit, targets=targets, reference=contestants[0]).fill(
            answer.get(id, {}), contestants, missing, factor
        )
        for id, (title, unit, factor, contestants, targets) in PLANS.items()
    ]
    return [
        *benches,
        *step.measure(homes, rounds),
        *peers.measure(homes, min(rounds, MOST_BESIDE)),
    ]
