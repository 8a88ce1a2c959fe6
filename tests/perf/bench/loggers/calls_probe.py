"""Times logging: `calls_probe calls ROUNDS DIR`, or `calls_probe idle SECONDS DIR`.

Prints by bench and contestant a list with a figure a round: seconds, or a share of a core. All take
turns in each round.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

import dftrace_ai
from dftrace_ai.loggers import Loggers, make_loggers

from . import trackers  # noqa: F401 - its trackers are known by this
from .calls import (
    AGAIN,
    ALL,
    HANGING,
    IDLE,
    LOCAL,
    MANY,
    METRICS,
    TENSORBOARD,
    TENSORS,
    WITHOUT,
    WRITER,
)

CALLS, MANY_CALLS, STEPS = 200, 20, 10
STEP_S = 0.05

Data = dict[str, Any]


def made(folder: str, *names: str, options: dict[str, str] | None = None, **how: Any) -> Loggers:
    """Return loggers to trackers."""
    config = {
        "log_dir": folder,
        "status_line": False,
        "system_metrics_s": None,
        "limit_s": 2.0,
        "run_name": "-".join(names),
        "options": options or {},
        **how,
    }
    return make_loggers({name: {"config": config} for name in names})


def metrics_of(count: int) -> Data:
    return {f"metric{number}": number / 7 for number in range(count)}


def seconds(call: Callable[[Data], object], data: Data, calls: int) -> float:
    """Return the median of the seconds of a call."""
    took = []
    for _ in range(calls):
        begun_ns = time.perf_counter_ns()
        call(data)
        took.append(time.perf_counter_ns() - begun_ns)
    return median(took) / 1e9


def training_step() -> Callable[[], object]:
    """Return forward and backward passes that take about 50 ms, where no others want the core."""
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
    batch = torch.randn(64, 256)

    def passes(count: int) -> None:
        for _ in range(count):
            model(batch).sum().backward()

    passes(10)
    begun_s = time.process_time()
    passes(20)
    count = max(1, round(STEP_S / ((time.process_time() - begun_s) / 20)))
    return lambda: passes(count)


def calls(rounds: int, folder: str) -> dict[str, dict[str, list[float]]]:
    """Time calls and steps."""
    dftrace_ai.initialize(log_file=f"{folder}/trace")
    local = made(folder, "local")
    everywhere = made(folder, "local", "tensorboard", "trace", "quiet")
    writer = SummaryWriter(f"{folder}/writer")
    numbers, many = metrics_of(METRICS), metrics_of(MANY)
    tensors = {name: torch.tensor(value) for name, value in numbers.items()}
    many_tensors = {name: torch.tensor(value) for name, value in many.items()}

    def write(data: Data) -> None:
        for name, value in data.items():
            writer.add_scalar(name, value)

    plans: dict[str, tuple[int, dict[str, tuple[Callable[[Data], object], Data]]]] = {
        "loggers_call": (
            CALLS,
            {
                LOCAL: (local.log_iter, numbers),
                ALL: (everywhere.log_iter, numbers),
                TENSORS: (everywhere.log_iter, tensors),
                WRITER: (write, numbers),
            },
        ),
        "loggers_many": (
            MANY_CALLS,
            {
                LOCAL: (local.log_iter, many),
                ALL: (everywhere.log_iter, many),
                TENSORS: (everywhere.log_iter, many_tensors),
            },
        ),
    }
    answer: dict[str, dict[str, list[float]]] = {id: {} for id in plans}
    for id, (count, contestants) in plans.items():
        for number in range(rounds + 1):
            for name, (call, data) in contestants.items():
                took = seconds(call, data, count)
                if number:
                    answer[id].setdefault(name, []).append(took)
                # What waits is nobody's burden in the next turn.
                for one in (local, everywhere):
                    one.flush()
    for one in (local, everywhere):
        one.end_log()
    writer.close()
    answer |= steps(rounds, folder, numbers)
    dftrace_ai.finalize()
    return answer


def steps(rounds: int, folder: str, numbers: Data) -> dict[str, dict[str, list[float]]]:
    """Time steps of a training, in blocks with and without in turn."""
    step = training_step()
    folder = f"{folder}/steps"
    kept = [made(folder, name) for name in ("local", "tensorboard", "hanging")]
    log: dict[str, Callable[[Data], object]] = {
        WITHOUT: lambda data: None,
        AGAIN: lambda data: None,
        LOCAL: kept[0].log_iter,
        TENSORBOARD: kept[1].log_iter,
        HANGING: kept[2].log_iter,
    }
    owners = {LOCAL: kept[0], TENSORBOARD: kept[1]}
    found: dict[str, dict[str, list[float]]] = {"loggers_step": {}, "loggers_step_cpu": {}}
    names = list(log)
    for number in range(2 * rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            took = []
            cpu_s = time.process_time()
            for _ in range(STEPS):
                begun_s = time.perf_counter()
                step()
                log[name](numbers)
                took.append(time.perf_counter() - begun_s)
            if name in owners:
                # What waits is part of the work, and nobody's burden in the next turn.
                owners[name].flush()
            if number:
                busy_s = (time.process_time() - cpu_s) / STEPS
                found["loggers_step"].setdefault(name, []).append(median(took))
                found["loggers_step_cpu"].setdefault(name, []).append(busy_s)
    for one in kept:
        one.end_log()
    return found


def idle(idle_s: int, folder: str) -> dict[str, dict[str, list[float]]]:
    """Measure the processor time of a process in which nothing is logged at the moment."""
    loggers = made(folder, "local", "trace", "quiet", system_metrics_s=10.0)
    loggers.log_iter({"loss": 1.0})
    loggers.flush()
    before_s, begun_s = time.process_time(), time.perf_counter()
    time.sleep(idle_s)
    share = (time.process_time() - before_s) / (time.perf_counter() - begun_s)
    return {"loggers_idle": {IDLE: [share]}}


def main() -> None:
    part, number, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    print(json.dumps((calls if part == "calls" else idle)(number, folder)))


if __name__ == "__main__":
    main()
