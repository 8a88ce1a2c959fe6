"""Trackers whose servers work, and end in the middle: what was sent is there, what was not is told."""

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
from pathlib import Path
from types import ModuleType
from urllib.request import urlopen

import pytest

from dftrace_ai.loggers.names import told_apart
from trackers.programs import six_kinds
from trackers.readers import aim, trackio
from trackers.tracker_runs import KINDS, LIMIT_S, PRELUDE, PROGRAMS, python_with, without_network

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
    given = json.dumps([module.NAME, server.options, str(folder), 0, 0])
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
        found = []
        for program in (KINDS, module.READER.replace(local, 'FOLDER / "server"')):
            with running(python, program, module, server, tmp_path) as process:
                out, error = process.communicate(timeout=LIMIT_S)
            found.append([json.loads(line) for line in out.splitlines() if line.startswith("{")])
            assert found[-1], error
        ((lost,), (read,)) = found
        assert lost == {"lost": 0}
        kinds, expected = read["kinds"], six_kinds.expected()
        if module is trackio:
            expected["run"]["project"] = told_apart("a_project", "a project")
        # Each has words of its own for how grave it is.
        kinds["alert"].pop(), expected["alert"].pop()
        assert {kind: kinds[kind] for kind in six_kinds.KINDS} == expected

        with running(python, STOPPED, module, server, tmp_path) as process:
            assert process.stdout is not None
            assert any(line == '"half"\n' for line in process.stdout)
            server.kill()
            _, error = process.communicate("\n", timeout=LIMIT_S)
    assert process.returncode == 0, error
    told = re.findall(r"the tracker (\w+) lost (\d+) of 20 records: (.*)", error)
    if module is aim:
        assert [(name, count) for name, count, _ in told] == [("aim", "10")], error
        return
    # It keeps what its server does not take, for the next run that finds one.
    with closing(
        sqlite3.connect(tmp_path / "runs" / "trackio" / "a_project-8d24f5bc0a.db")
    ) as database:
        unsent = database.execute("select step from metrics where run_name = 'stopped'").fetchall()
    assert {(step,) for step in range(10, 20)} <= set(unsent) or "may not have kept" in told[0][2]
