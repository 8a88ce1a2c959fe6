"""Loggers and a trace in a kernel of Jupyter: cells run again, interrupts, restarts, a kill."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import read_all, trace_files
from kernels import LIMIT_S, Kernel

from dftrace_ai.loggers.runs.reading import read_runs

TRACKER = Path(__file__).parent / "delivery"

CELL = """
import time
import nasty, dftrace_ai
from dftrace_ai.loggers import make_loggers

dftrace_ai.initialize(log_file="trace")
config = {"run_name": RUN, "limit_s": 20, "system_metrics_s": None, "status_line": False}
loggers = make_loggers({name: {"config": config} for name in ("local", "nasty")})
for step in range(5):
    with dftrace_ai.ai.compute.forward:
        loggers.log_iter({"loss": float(step)})
"""

ENDLESS = """
open("begun", "w").close()
while True:
    loggers.log_iter({"loss": -1.0})
    time.sleep(0.001)
"""


class Notebook(Kernel):
    """A kernel, and what lies in the directory that it works in."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, TRACKER)

    def begin(self, code: str, **names: Any) -> str:
        """Begin to run a cell."""
        return super().begin(
            "".join(f"{name} = {value!r}\n" for name, value in names.items()) + code
        )

    def ended(self, number: str) -> list[str]:
        """Wait for the end of a cell; returns what it printed, and its exception."""
        said = []
        for kind, content in self.messages(number):
            if kind == "error":
                said.append(content["ename"])
            elif content.get("name") == "stdout":
                said += content["text"].split()
        return said

    def printed(self, code: str, **names: Any) -> list[str]:
        """Run a cell; what it printed, and its exception."""
        return self.ended(self.begin(code, **names))

    def logs(self, run: str) -> list[list[Any]]:
        """The lines of the logs of a run, in the order in which they were begun."""
        files = (self.folder / "runs" / "default" / run).glob("*.jsonl")
        ordered = sorted(files, key=lambda file: int(file.stem.split("-")[-1]))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in ordered]

    def taken(self, run: str) -> list[str]:
        """What the tracker has taken."""
        return (self.folder / "runs" / "default" / run / "nasty.txt").read_text().split()

    def processes(self) -> int:
        """How many processes of trackers there are."""
        found = 0
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            found += any(word.startswith(str(self.folder / "runs")) for word in words)
        return found


def losses(lines: list[Any]) -> list[float]:
    return [line["v"]["loss"] for line in lines if line["k"] == "m"]


def status(lines: list[Any]) -> str | None:
    return lines[-1].get("status")


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    pytest.importorskip("ipykernel", reason="is a kernel of Jupyter")
    one = Notebook(tmp_path)
    yield one
    one.close()


def test_cells_interrupts_restarts_and_a_kill(notebook: Notebook) -> None:
    values = [0.0, 1.0, 2.0, 3.0, 4.0]
    # A cell that is run again makes loggers anew, and those from before end.
    for _ in range(2):
        assert notebook.printed(CELL, RUN="again") == []
    wait_for(lambda: status(notebook.logs("again")[0]) == "finished")
    wait_for(lambda: losses(notebook.logs("again")[1]) == values)
    wait_for(lambda: notebook.processes() == 2)  # the tracker, and who stands beside it
    assert losses(notebook.logs("again")[0]) == values

    # What ends a cell ends no run.
    assert notebook.printed("raise ValueError") == ["ValueError"]
    number = notebook.begin(ENDLESS)
    wait_for((notebook.folder / "begun").exists)
    wait_for(lambda: -1.0 in losses(notebook.logs("again")[1]))
    notebook.manager.interrupt_kernel()
    assert notebook.ended(number) == ["KeyboardInterrupt"]
    assert notebook.printed("loggers.log_iter({'loss': 7.0}); print(loggers.status)") == ["running"]
    wait_for(lambda: losses(notebook.logs("again")[1])[-1] == 7.0)

    # But what ends a block does.
    block = f"{CELL}\nwith loggers:\n    raise KeyboardInterrupt"
    assert notebook.printed(block, RUN="block") == ["KeyboardInterrupt"]
    assert status(notebook.logs("block")[0]) == "killed"
    assert notebook.printed(CELL, RUN="restarted") == []

    notebook.manager.restart_kernel()
    notebook.wait_for_ready()
    assert status(notebook.logs("again")[1]) == status(notebook.logs("restarted")[0]) == "finished"
    wait_for(lambda: notebook.processes() == 0)
    assert notebook.taken("restarted") == [*"01234", "finished"]
    (trace,) = read_all(trace_files(notebook.folder))
    assert sum(event.name == "forward" for event in trace.events) == 20

    assert notebook.printed(CELL, RUN="killed") == []
    wait_for(lambda: losses(notebook.logs("killed")[0]) == values)
    notebook.manager.shutdown_kernel(now=True)
    wait_for(lambda: notebook.processes() == 0)
    assert notebook.taken("killed") == [*"01234", "killed"]
    found = {run.name: run.status for run in read_runs(notebook.folder / "runs")}
    assert found == {
        **dict.fromkeys(("again", "restarted"), "finished"),
        **dict.fromkeys(("block", "killed"), "killed"),
    }
