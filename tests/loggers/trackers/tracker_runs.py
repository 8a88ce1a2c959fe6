"""Logs to all trackers from programs that have no network, and has their own readers tell what is there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
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
import io, json, os, signal, sys
from pathlib import Path
import numpy, psutil
from PIL import Image
from dftrace_ai.loggers import make_loggers
import forked_workers, six_kinds, shuffled_steps

OPTIONS, FOLDER, EPOCHS, READERS = json.loads(sys.argv[1])
FOLDER = Path(FOLDER)

def loggers_of(run_name, **config):
    config = {
        "log_dir": str(FOLDER / "runs"), "project": "a project", "run_name": run_name,
        "tags": ["one", "two"], "system_metrics_s": None, "status_line": False, "limit_s": 120, **config,
    }
    entries = {name: {"config": config | {"options": options}} for name, options in OPTIONS.items()}
    return make_loggers({"logger": entries})

def pixels(file):
    return numpy.array(Image.open(file)).tolist()

def tell_found(kinds, steps):
    print(json.dumps(six_kinds.plain({"kinds": kinds, "steps": steps})))

def tell_lost(loggers):
    print(json.dumps({"lost": {logger.name: logger._entry.delivery.lost() for logger in loggers}}))
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
tell_lost(loggers)
"""

# One rank ends by an exception, the other is killed; then the first goes on from before.
STEPS = """
with loggers_of("steps", ranks="all") as loggers:
    for step, value in shuffled_steps.of(int(os.environ["RANK"])):
        loggers.log_iter({"loss": value}, step=step)
    loggers.flush()
    if os.environ["RANK"] == "1":
        pids = [child.pid for child in psutil.Process().children(recursive=True)]
        print(json.dumps({"pids": pids}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("a training that fails")
"""

# What a forked worker inherits is the most where the tracker lives in the training's own process.
AGAIN = """
with loggers_of("steps", ranks="all", resume="must", in_process=True) as loggers:
    forked_workers.train(loggers, shuffled_steps.again(), EPOCHS)
    loggers.log_video("clip", six_kinds.FRAMES)
tell_lost(loggers)
"""

APART = """
FOLDER = FOLDER / "apart"
with loggers_of("apart") as loggers:
    forked_workers.train(loggers, shuffled_steps.again(), EPOCHS)
tell_lost(loggers)
"""

# Each in a fork of one process, for their packages do not all go together.
READ = """
children = {}
for name, reader in READERS.items():
    child = os.fork()
    if not child:
        os.dup2(os.open(FOLDER / f"{name}.found", os.O_WRONLY | os.O_CREAT, 0o600), 1)
        try:
            exec(compile(reader, name, "exec"), globals())
            sys.stdout.flush()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    children[child] = name
failed = [name for child, name in children.items() if os.waitpid(child, 0)[1]]
sys.exit(f"cannot be read back: {failed}" if failed else 0)
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


@cache
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
        lost: how many records the tracker did not take, as the loggers tell it.
        attempts: who tried to reach the network, one line each; of any tracker.
        said: what the programs wrote on standard error; of all trackers.
    """

    kinds: dict[str, Any]
    steps: list[dict[str, Any]]
    lost: int
    attempts: list[str]
    said: str


def told(out: str) -> dict[str, Any]:
    """What a program has told; trackers print before and after."""
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def logged_and_read(modules: list[ModuleType], folder: Path) -> dict[str, TrackerRuns]:
    """Log to several trackers at once, and read what is there; by the trackers' names.

    A module has NAME, PACKAGE and READER, a program's text.
    """
    (python,) = {python_with(module.PACKAGE) for module in modules}
    names = [module.NAME for module in modules]
    proxy = Refusing()
    said, lost = [], dict.fromkeys(names, 0)
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    environment = without_network(folder, *names) | {
        **dict.fromkeys((*proxies, *map(str.upper, proxies)), proxy.url),
        "NO_PROXY": "127.0.0.1,localhost",
    }
    started: list[subprocess.Popen[str]] = []

    def start(program: str, rank: int | None = None, **more: str) -> subprocess.Popen[str]:
        ranks = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
        readers = {module.NAME: module.READER for module in modules if program == READ}
        given = json.dumps([dict.fromkeys(names, {}), str(folder), EPOCHS, readers])
        process = subprocess.Popen(
            [str(python), "-c", PRELUDE + program, given],
            cwd=folder,
            env=environment | ranks | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    def ended(process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
        out, error = process.communicate(timeout=LIMIT_S)
        said.append(error)
        assert process.returncode == code, f"{process.returncode}\n{out}\n{error}"
        found = told(out)
        for name, count in found.get("lost", {}).items():
            lost[name] += count
        return found

    with_moviepy = {"PYTHONPATH": f"{environment['PYTHONPATH']}:{HERE / 'with_moviepy'}"}
    try:
        ended(start(KINDS))
        failing, killed = start(STEPS, 0), start(STEPS, 1)
        ended(failing, 1)
        _wait_for(ended(killed, -9)["pids"])
        last = [start(AGAIN, 0, **with_moviepy)]
        if share_of(0) > 0:
            last.append(start(APART))
        for process in last:
            ended(process)
        ended(start(READ))
    finally:
        for process in started:
            if process.returncode is None:
                # With its children, whose pipes are the same.
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        proxy.close()
    kept = folder / "attempts"
    attempts = kept.read_text().splitlines() if kept.exists() else []
    attempts += ["through the proxy"] * proxy.came
    return {
        name: TrackerRuns(
            **told((folder / f"{name}.found").read_text()),
            lost=lost[name],
            attempts=attempts,
            said="".join(said),
        )
        for name in names
    }


def _wait_for(pids: list[int]) -> None:
    """Wait until a killed rank's trackers have ended by themselves."""
    until = time.monotonic() + LIMIT_S
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
