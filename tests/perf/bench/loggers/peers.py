"""What a call costs that logs metrics, beside trackers as people call them themselves."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from bench.figures import Bench, Series, Target
from bench.processes import Homes, environment

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


class _Worker:
    """A process that logs by one tracker when it is told to."""

    def __init__(self, homes: Homes, name: str, folder: Path) -> None:
        self.missing = ""
        packages = homes.peer_packages()
        folder.mkdir()
        self._errors = (folder / "errors").open("w+")
        extra = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(folder)}
        extra |= {"TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
        command = [homes.main, "-m", "bench.loggers.peers_probe", name, str(folder)]
        self._process = subprocess.Popen(
            [*command, *([packages] if packages else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=folder,
            env=environment(extra),
        )
        told = self._told()
        self.missing = self.missing or told.get("missing", "")
        self.version = told.get("version", "")

    def took(self, metrics: int) -> float | None:
        """Return the seconds of a call, or None where the tracker is not there."""
        if self.missing:
            return None
        self._pipe().write(f"{metrics} {CALLS[metrics]}\n")
        self._pipe().flush()
        found = self._told()
        return None if self.missing else float(found)

    def close(self) -> None:
        """End the process."""
        self._pipe().close()
        self._process.wait(60)

    def _pipe(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _told(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        self.missing = said[-1] if said else "it ended without a message"
        return {}


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
            name: _Worker(homes, name, Path(scratch, str(number)))
            for number, name in enumerate([OURS, *TRACKERS])
        }
        for number in range(rounds + 1):
            for metrics, bench in zip(CALLS, benches, strict=True):
                for series in bench.series:
                    worker = workers[series.contestant]
                    took_s = worker.took(metrics)
                    series.missing = worker.missing
                    if took_s is None:
                        continue
                    if number:
                        series.samples.append(took_s * 1e6)
                    time.sleep(SETTLING_S)
        for worker in workers.values():
            worker.close()
    return benches
