"""What a call costs that logs metrics, beside trackers as people call them themselves."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.processes import Homes, Worker
from bench.series import Bench, Series, Target

OURS = "dftrace_ai, four interfaces"
TRACKERS = (
    "SummaryWriter",
    "wandb, offline",
    "mlflow, sqlite",
    "trackio, local",
    "accelerate's TensorBoardTracker",
    "accelerate's WandBTracker, offline",
)
# By metrics: how many calls a turn has.
CALLS = {20: 30, 1000: 3}
# What a tracker does after its turn is not to be in another's.
SETTLING_S = 0.2


def _worker(homes: Homes, name: str, folder: Path) -> Worker:
    """Start a process that logs by one tracker when it is told to."""
    folder.mkdir()
    extra = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(folder)}
    extra |= {"TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
    packages = homes.peer_packages()
    command = ["bench.loggers.peers_probe", name, str(folder), *([packages] if packages else [])]
    worker = Worker(homes.main, command, folder, extra)
    worker.greet()
    return worker


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Have everyone log in each round, in turn."""
    benches = []
    for metrics in CALLS:
        title = f"{metrics} metrics logged beside other trackers, on the thread that calls"
        names = [OURS, *TRACKERS]
        bench = Bench(f"loggers_peers_{metrics}", title, "us", reference=OURS)
        bench.series = [Series(name) for name in names]
        bench.targets = [Target(OURS, 1.0, name) for name in TRACKERS]
        benches.append(bench)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as scratch:
        workers = {
            name: _worker(homes, name, Path(scratch, str(number)))
            for number, name in enumerate([OURS, *TRACKERS])
        }
        for number in range(rounds + 1):
            for metrics, bench in zip(CALLS, benches, strict=True):
                for name, worker in workers.items():
                    answer = worker.ask({"metrics": metrics, "calls": CALLS[metrics]})
                    if number:
                        bench.take(name, answer, "us")
                    if not worker.missing:
                        time.sleep(SETTLING_S)
        for worker in workers.values():
            worker.close()
    return benches
