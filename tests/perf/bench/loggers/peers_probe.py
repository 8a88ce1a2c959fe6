"""Logs by one tracker when it is told to: `peers_probe NAME DIR [PEER_PACKAGES]`.

Answers each line `{"metrics": NUMBER, "calls": NUMBER}` with the median of the microseconds of a call. The first
line it prints is its version, or why it is not there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from statistics import median
from typing import Any

from .peers import OURS, TRACKERS

Call = Callable[[dict[str, float], int], object]


def ours(folder: str) -> Call:
    import dftrace_ai

    from .calls_probe import made

    dftrace_ai.initialize(log_file=f"{folder}/trace")
    loggers = made(folder, "local", "tensorboard", "trace", "quiet")
    return lambda data, step: loggers.log_iter(data, step)


def writer(folder: str) -> Call:
    from torch.utils.tensorboard import SummaryWriter

    made = SummaryWriter(folder)

    def write(data: dict[str, float], step: int) -> None:
        for name, value in data.items():
            made.add_scalar(name, value, step)

    return write


def wandb_offline(folder: str) -> Call:
    import wandb  # type: ignore[import-not-found]

    run = wandb.init(project="bench", dir=folder, mode="offline")
    return lambda data, step: run.log(data)


def mlflow_sqlite(folder: str) -> Call:
    import mlflow  # type: ignore[import-not-found]

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("bench")
    mlflow.start_run()
    return lambda data, step: mlflow.log_metrics(data, step=step)


def trackio_local(folder: str) -> Call:
    """Log to a database below the home directory, which is the folder here."""
    import trackio  # type: ignore[import-not-found]

    trackio.init(project="bench", name="run", embed=False, auto_log_cpu=False, auto_log_gpu=False)
    return lambda data, step: trackio.log(data)


def accelerated(folder: str, kind: str) -> Call:
    from accelerate import Accelerator

    import_module(kind)  # without it accelerate logs nothing, and is quick about it
    accelerator = Accelerator(cpu=True, log_with=kind, project_dir=folder)
    accelerator.init_trackers("bench")
    return lambda data, step: accelerator.log(data, step=step)


PACKAGES: dict[str, tuple[str, Callable[[str], Call]]] = {
    OURS: ("dftrace-ai", ours),
    TRACKERS[0]: ("torch", writer),
    TRACKERS[1]: ("wandb", wandb_offline),
    TRACKERS[2]: ("mlflow-skinny", mlflow_sqlite),
    TRACKERS[3]: ("trackio", trackio_local),
    TRACKERS[4]: ("accelerate", lambda folder: accelerated(folder, "tensorboard")),
    TRACKERS[5]: ("accelerate", lambda folder: accelerated(folder, "wandb")),
}


def main() -> None:
    name, folder = sys.argv[1:3]
    sys.path.extend(sys.argv[3:])
    # What a tracker prints is not for who reads the figures.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        package, make = PACKAGES[name]
        call = make(folder)
        answers.write(json.dumps({"version": version(package)}) + "\n")
    except ImportError as error:
        answers.write(json.dumps({"missing": f"{type(error).__name__}: {error}"}) + "\n")
        return
    step = 0
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("close"):
            answers.write("{}\n")
            break
        metrics = range(request["metrics"])
        data: dict[str, Any] = {f"metric{number}": number / 7 for number in metrics}
        took = []
        for _ in range(request["calls"]):
            begun_ns = time.perf_counter_ns()
            call(data, step)
            took.append(time.perf_counter_ns() - begun_ns)
            step += 1
        answers.write(json.dumps({"us": median(took) / 1e3}) + "\n")
    answers.flush()
    # Ends of runs are not measured here, and some take long without a network.
    os._exit(0)


if __name__ == "__main__":
    main()
