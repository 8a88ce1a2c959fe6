"""Trackers whose servers hang, refuse, err, die or work and end in the middle; a store that was half made."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from urllib.request import urlopen

import pytest
from conftest import clean_environment
from sampling import times

from dftrace_ai.loggers.names import told_apart
from trackers.programs import bad_servers, six_kinds
from trackers.readers import IN_PROCESS, READERS, aim, mlflow, trackio
from trackers.tracker_runs import (
    KINDS,
    LIMIT_S,
    PRELUDE,
    PROGRAMS,
    python_with,
    told,
    without_network,
)

# The servers that come with their trackers, without what else they would need.
AIM = """
import sys
from aim import Repo
from aim.cli.cli import cli_entry_point

place, port = sys.argv[1:]
Repo.from_path(place, init=True)
sys.argv[1:] = ["server", "--repo", place, "--host", "127.0.0.1", "--port", port, "-y"]
cli_entry_point()
"""
TRACKIO = """
import os, sys, threading

os.environ.update(TRACKIO_DIR=sys.argv[1], HF_HUB_OFFLINE="1", GRADIO_ANALYTICS_ENABLED="False")
import trackio

trackio.show(server_port=int(sys.argv[2]), open_browser=False, block_thread=False)
sys.stdout.flush()
threading.Event().wait()
"""
TRIES = 3

# Half of it when the server has ended.
STOPPED = """
import time
loggers = loggers_of("stopped", limit_s=3)
for step in range(10):
    loggers.log_iter({"loss": float(step)})
while loggers[0]._entry.delivery.tracker.standing().taken < 10:
    time.sleep(0.01)
print(json.dumps("half"), flush=True)
sys.stdin.readline()
for step in range(10, 20):
    loggers.log_iter({"loss": float(step)})
"""


class Server:
    """A tracker's server.

    Attributes:
        options: those of an interface that logs to it.
        place: directory that it keeps everything in.
    """

    def __init__(self, module: ModuleType, python: str, folder: Path) -> None:
        self.place = folder / "server"
        self.place.mkdir()
        self._name = module.NAME
        self._output = folder / "server.log"
        environment = without_network(folder, module.NAME)
        for _ in range(TRIES):
            # Somebody else may be given it before the server asks for it.
            with socket.create_server(("127.0.0.1", 0)) as door:
                self._port = door.getsockname()[1]
            program = {"aim": AIM, "trackio": TRACKIO}[self._name]
            with self._output.open("w") as output:
                self._process = subprocess.Popen(
                    [python, "-c", program, str(self.place), str(self._port)],
                    cwd=folder,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            if self._answers():
                break
        else:
            raise AssertionError(self._output.read_text())
        self.options = {"repo": f"aim://127.0.0.1:{self._port}"}
        if self._name == "trackio":
            address = re.search(r"http\S+\?write_token=[\w-]+", self._output.read_text())
            assert address, self._output.read_text()
            self.options = {"server_url": address[0].replace("?", "/?")}

    def _answers(self) -> bool:
        """Wait until it answers; tell whether it does, or has ended."""
        is_aim = self._name == "aim"
        url = f"http://127.0.0.1:{self._port}/{'status/' if is_aim else ''}"
        until = time.monotonic() + LIMIT_S
        while self._process.poll() is None and time.monotonic() < until:
            with suppress(OSError), urlopen(url, timeout=LIMIT_S):
                if is_aim or "write_token" in self._output.read_text():
                    return True
            time.sleep(0.05)
        self.kill()
        return False

    def kill(self) -> None:
        """End it at once, with what it has started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def served(module: ModuleType, folder: Path) -> Iterator[tuple[str, Server]]:
    python = python_with(module.PACKAGE)
    if python is None:
        pytest.skip(f"{module.PACKAGE} is not installed: `make .venv-trackers/made`")
    server = Server(module, python, folder)
    try:
        yield python, server
    finally:
        server.kill()


@contextmanager
def running(
    python: str, program: str, module: ModuleType, server: Server, folder: Path
) -> Iterator[subprocess.Popen[str]]:
    given = json.dumps([{module.NAME: server.options}, str(folder), 0, {}])
    (folder / "training").mkdir(exist_ok=True)
    environment = {"HOME": str(folder), "PYTHONPATH": str(PROGRAMS), "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [python, "-c", PRELUDE + program, given],
        cwd=folder / "training",
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("module", [aim, trackio], ids=lambda module: module.NAME)
def test_a_server_that_works_and_ends_in_the_middle(tmp_path: Path, module: ModuleType) -> None:
    local = 'FOLDER / "runs" / "trackio"' if module is trackio else 'FOLDER / "runs"'
    with served(module, tmp_path) as (python, server):
        with running(python, KINDS + STOPPED, module, server, tmp_path) as process:
            assert process.stdout is not None
            lost = told("".join(takewhile(lambda line: line != '"half"\n', process.stdout)))
            reader = module.READER.replace(local, 'FOLDER / "server"')
            with running(python, reader, module, server, tmp_path) as reading:
                out, error = reading.communicate(timeout=LIMIT_S)
            server.kill()
            kinds = told(out).get("kinds")
            assert kinds, error
            _, error = process.communicate("\n", timeout=LIMIT_S)
        assert lost == {"lost": {module.NAME: 0}}, error
        expected = six_kinds.expected()
        if module is trackio:
            expected["run"]["project"] = told_apart("a_project", "a project")
        # Each has words of its own for how grave it is.
        kinds["alert"].pop(), expected["alert"].pop()
        assert {kind: kinds[kind] for kind in six_kinds.KINDS} == expected
    assert process.returncode == 0, error
    missed = re.findall(
        r"the tracker (\w+) (?:lost|has not taken) (\d+) of 20 records: (.*)", error
    )
    if module is aim:
        assert [(name, count) for name, count, _ in missed] == [("aim", "10")], error
        return
    # It keeps what its server does not take, for the next run that finds one.
    with closing(
        sqlite3.connect(tmp_path / "runs" / "trackio" / "a_project-8d24f5bc0a.db")
    ) as database:
        unsent = database.execute("select step from metrics where run_name = 'stopped'").fetchall()
    assert {(step,) for step in range(10, 20)} <= set(unsent) or "may not have kept" in missed[0][2]


MODES = ("hangs", "refuses", "answers 500", "dies")
UNSURE = "may not have kept or sent all of them"
GIVEN = bad_servers.STEPS + 1  # and what the epoch comes to


@pytest.mark.sampled
@pytest.mark.parametrize("shift", range(times(len(MODES), 0.25)))
def test_training_is_unharmed_and_the_loss_is_told(tmp_path: Path, shift: int) -> None:
    pythons = {one.NAME: python_with(one.PACKAGE) for one in READERS if one not in IN_PROCESS}
    names = sorted(name for name, python in pythons.items() if python)
    if not names:
        pytest.skip("no tracker is installed: `make .venv-trackers/made`")
    modes = {name: MODES[(index + shift) % len(MODES)] for index, name in enumerate(names)}
    done = subprocess.run(
        [str(pythons[names[0]]), "-m", "bad_servers", json.dumps(modes)],
        cwd=tmp_path,
        env=without_network(tmp_path, *pythons),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == names
    run = tmp_path / "runs" / "default" / "run"
    (log,) = run.glob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    numbers = [line["v"]["loss"] for line in lines if line["k"] == "m" and line["a"] == "i"]
    assert numbers == [float(step) for step in range(bad_servers.STEPS)]
    assert lines[-1]["status"] == "finished"
    told = re.findall(
        r"the tracker (\w+) (?:lost|has not taken) (\d+) of (\d+) records?: (.*)", done.stderr
    )
    assert len({name for name, *_ in told}) == len(told), done.stderr
    lost = {name: (int(count), why) for name, count, given, why in told if given == str(GIVEN)}
    assert len(lost) == len(told), done.stderr
    assert kept_elsewhere(tmp_path) == []
    for name in names:
        count, why = lost.get(name, (0, ""))
        if name == "trackio":
            # It keeps what a server has not taken, for the next run that finds one.
            assert count + kept_by_trackio(tmp_path) == GIVEN or UNSURE in why, done.stderr
        else:
            assert count == GIVEN, done.stderr


def kept_elsewhere(folder: Path) -> list[Path]:
    """Files of trackers, other than Trackio's, that hold anything of what was logged."""
    files = [path for path in (folder / "runs").rglob("*") if path.is_file()]
    others = [path for path in files if path.suffix not in {".jsonl", ".lines"}]
    others = [path for path in others if path.parent.name != "trackio"]
    return [path for path in others if b"epoch/loss" in path.read_bytes()]


def kept_by_trackio(folder: Path) -> int:
    """How many records there are in its database."""
    path = folder / "runs" / "trackio" / "default.db"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as database:
        asked = "select count(*) from metrics where cast(metrics as text) like '%loss%'"
        ((count,),) = database.execute(asked)
    return int(count)


# A store is made in more than a thousand statements; after some of them it cannot be gone on with.
CUT_SHORT = """
import os
import sys
from pathlib import Path

from mlflow.tracking import MlflowClient
from sqlalchemy import event
from sqlalchemy.engine import Engine

from dftrace_ai.loggers.trackers.base import RunFacts
from dftrace_ai.loggers.trackers.mlflow import MLFlowLogint
from dftrace_ai.loggers.records import Point

root = Path(sys.argv[1])
run = RunFacts(project="a project", run_name="run", log_dir=root, root=root)
done = 0

def count(*given):
    global done
    done += 1
    if done == 245:
        os._exit(9)

child = os.fork()
if not child:
    event.listen(Engine, "after_cursor_execute", count)
    MLFlowLogint(run).open()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
logint = MLFlowLogint(run)
logint.open()
logint.at = Point(3, time_s=1.0)
logint.log_metrics({"loss": 0.5}, 3)
logint.lull()
logint.finish("finished")
client = MlflowClient(tracking_uri=f"sqlite:///{root / 'mlflow.db'}")
(found,) = client.search_runs([client.get_experiment_by_name("a project").experiment_id])
print(found.data.metrics, found.info.status)
print(sorted(path.name for path in root.iterdir()))
"""


def test_a_store_whose_making_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    python = python_with(mlflow.PACKAGE)
    if python is None:
        pytest.skip(f"{mlflow.PACKAGE} is not installed: `make .venv-trackers/made`")
    done = subprocess.run(
        [python, "-c", CUT_SHORT, str(tmp_path)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "9",
        "{'loss': 0.5} FINISHED",
        "['.mlflow.lock', 'mlflow.db']",
    ], done.stderr
