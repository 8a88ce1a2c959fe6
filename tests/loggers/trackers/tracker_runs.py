"""Logs to a tracker from programs that have no network, and has its own reader tell what is there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
from sampling import share_of, times

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAMS = HERE / "programs"
LIMIT_S = 240
RANKS = 2
# Of a loader with forked workers. Beside a tracker in a process of its own, whose pipe is all that
# they inherit, they are tried where all of a matrix is asked for.
EPOCHS = times(200, 0.025)
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")

PRELUDE = """
import json, os, signal, sys
from pathlib import Path
import numpy, psutil
from PIL import Image
from dftrace_ai.loggers import make_loggers
import forked_workers, six_kinds, shuffled_steps

NAME, OPTIONS, FOLDER, COUNT, EPOCHS = json.loads(sys.argv[1])
FOLDER = Path(FOLDER)

def loggers_of(run_name, **config):
    config = {
        "log_dir": str(FOLDER / "runs"), "project": "a project", "run_name": run_name,
        "tags": ["one", "two"], "options": OPTIONS, "system_metrics_s": None, "status_line": False,
        "limit_s": 120, **config,
    }
    return make_loggers({"logger": {NAME: {"config": config}}})

def pixels(file):
    return numpy.array(Image.open(file)).tolist()

def tell_found(kinds, steps):
    print(json.dumps(six_kinds.plain({"kinds": kinds, "steps": steps})))

def tell():
    pids = [child.pid for child in psutil.Process().children(recursive=True)]
    print(json.dumps({"pids": pids}), flush=True)
"""

KINDS = """
loggers = loggers_of(
    "kinds", group="a group", loggers=list(six_kinds.VARIABLES),
    tracked_variables=six_kinds.VARIABLES, bins=six_kinds.BINS,
)
given = FOLDER / "given"
given.mkdir()
six_kinds.log(loggers, given)
loggers.end_log()
print(json.dumps({"lost": sum(logger._entry.delivery.lost() for logger in loggers)}))
"""

# One rank ends by an exception, the other is killed; then the first goes on from before.
STEPS = """
with loggers_of("steps", ranks="all") as loggers:
    for step, value in shuffled_steps.of(int(os.environ["RANK"]), COUNT):
        loggers.log_iter({"loss": value}, step=step)
    loggers.flush()
    if os.environ["RANK"] == "1":
        tell()
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("a training that fails")
"""

# What a forked worker inherits is the most where the tracker lives in the training's own process.
AGAIN = """
with loggers_of("steps", ranks="all", resume="must", in_process=True) as loggers:
    forked_workers.train(loggers, shuffled_steps.again(COUNT), EPOCHS)
    loggers.log_video("clip", six_kinds.FRAMES)
print(json.dumps({"lost": loggers[0]._entry.delivery.lost()}))
"""

APART = """
FOLDER = FOLDER / "apart"
with loggers_of("apart") as loggers:
    forked_workers.train(loggers, shuffled_steps.again(COUNT), EPOCHS)
print(json.dumps({"lost": loggers[0]._entry.delivery.lost()}))
"""


class Refusing:
    """A proxy that takes no request, and counts those who came: programs that are not Python's."""

    def __init__(self) -> None:
        self.came = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._refuse, daemon=True).start()

    def _refuse(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.came += 1
            connection.close()

    def close(self) -> None:
        self._socket.close()


def python_with(package: str) -> str | None:
    """An interpreter that has the tracker: of the trackers' own environment, or this one."""
    for python in (ROOT / ".venv-trackers/bin/python", Path(sys.executable)):
        asked = f"import importlib.util as i, sys; sys.exit(i.find_spec({package!r}) is None)"
        if python.exists() and not subprocess.run([python, "-c", asked], check=False).returncode:
            return str(python)
    return None


def without_network(folder: Path, *names: str) -> dict[str, str]:
    """The environment of a program that has no network, nor any setting of the trackers of a name."""
    (folder / "home").mkdir()
    foreign = ("DFTRACE_", "DFTRACER_", "SLURM_", *(name.upper() for name in names))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign) and k not in LAUNCHER}
    return kept | {
        "HOME": str(folder / "home"),
        "ATTEMPTS": str(folder / "attempts"),
        "PYTHONPATH": f"{HERE / 'no_network'}:{PROGRAMS}",
        "PYTHONWARNINGS": "ignore",
    }


@dataclass
class TrackerRuns:
    """What was read back of a tracker's runs.

    Attributes:
        kinds: of the run that logged one of everything.
        steps: of each rank of the run that logged shuffled steps.
        attempts: who tried to reach the network, one line each.
        said: what the programs wrote on standard error.
        lost: how many records the tracker did not take, as the loggers tell it.
    """

    folder: Path
    kinds: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    said: str = ""
    lost: int = -1

    @classmethod
    def made(cls, module: ModuleType, python: str, folder: Path) -> TrackerRuns:
        """Log and read; `module` has NAME, OPTIONS, STEP_COUNT and READER, a program's text."""
        runs = cls(folder)
        proxy = Refusing()
        attempts = folder / "attempts"
        environment = without_network(folder, module.NAME) | {
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy.url),
            **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), proxy.url),
            "NO_PROXY": "127.0.0.1,localhost",
        }

        def start(
            program: str, rank: int | None = None, *, has_moviepy: bool = False
        ) -> subprocess.Popen[str]:
            path = environment["PYTHONPATH"] + f":{HERE / 'with_moviepy'}" * has_moviepy
            ranks = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
            told = [module.NAME, module.OPTIONS, str(folder), module.STEP_COUNT, EPOCHS]
            given = json.dumps(told)
            process = subprocess.Popen(
                [python, "-c", program, given],
                cwd=folder,
                env=environment | ranks | {"PYTHONPATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            started.append(process)
            return process

        def ended(process: subprocess.Popen[str], codes: tuple[int, ...]) -> dict[str, Any]:
            out, error = process.communicate(timeout=LIMIT_S)
            runs.said += error
            assert process.returncode in codes, f"{process.returncode}\n{out}\n{error}"
            # Trackers print before and after.
            told = [line for line in out.splitlines() if line.startswith("{")]
            return json.loads(told[-1]) if told else {}

        started: list[subprocess.Popen[str]] = []
        try:
            kinds = start(PRELUDE + KINDS)
            failing = start(PRELUDE + STEPS, 0)
            killed = start(PRELUDE + STEPS, 1)
            runs.lost = ended(kinds, (0,))["lost"]
            assert runs.lost == 0, runs.said
            ended(failing, (1,))
            _wait_for(ended(killed, (-9,))["pids"])
            last = [start(PRELUDE + AGAIN, 0, has_moviepy=True)]
            if share_of(0) > 0:
                last.append(start(PRELUDE + APART))
            assert [ended(process, (0,)) for process in last] == [{"lost": 0}] * len(last)
            found = ended(start(PRELUDE + module.READER), (0,))
        finally:
            for process in started:
                if process.returncode is None:
                    # With its children, whose pipes are the same.
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            proxy.close()
        runs.kinds, runs.steps = found["kinds"], found["steps"]
        runs.attempts = attempts.read_text().splitlines() if attempts.exists() else []
        runs.attempts += ["through the proxy"] * proxy.came
        return runs


def _wait_for(pids: list[int]) -> None:
    """Wait until a killed rank's trackers have ended by themselves."""
    until = time.monotonic() + LIMIT_S
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
