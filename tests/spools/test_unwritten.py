"""A process that runs: how much of what it has recorded is not in the figures of its trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import clean_environment
from safety.commands import invoke

from dftrace_ai.trace_format.running import RunningProcess, told_of

WRITTEN = 30 + 100
UNWRITTEN = 400 + 20 + 4 + 5

PROGRAM = """
import asyncio, signal, sys, threading
import dftrace_ai
from dftrace_ai import ai

run = dftrace_ai.initialize(log_file=sys.argv[1] + "/t", flush_interval_ms=60000)

async def task():
    with ai.data.item:  # on a lane, whose name is no event
        await asyncio.sleep(0)

async def tasks():
    await asyncio.gather(*[task() for _ in range(20)])

def work():
    for step in range(30):
        with ai.compute.forward(step=step):
            pass

thread = threading.Thread(target=work, name="other")
thread.start()
thread.join()
for step in range(100):
    with ai.compute.backward(step=step):
        pass
run.flush()
for step in range(400):
    with ai.compute.backward(step=step):
        pass
asyncio.run(tasks())
for number in range(2):
    ai.instant("best")
    ai.counter("loss", values={"loss": 1.0})
with ai.comm.send:
    ai.comm.flow_out(7)
    ai.comm.flow_in(7)
open_span = ai.pipeline.train.start()
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def standing(tmp_path: Path) -> Any:
    """A process of rank 3 that stands still, with some events written and others not."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**clean_environment(), "RANK": "3", "WORLD_SIZE": "4"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_what_is_in_the_spool_only_is_counted_and_said(
    tmp_path: Path, standing: subprocess.Popen[str]
) -> None:
    done = invoke("summary", tmp_path, "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    (running,) = report["running"]
    assert (running["rank"], running["pid"]) == (3, standing.pid)
    assert (report["events"], running["unwritten"]) == (WRITTEN, UNWRITTEN)
    said = (
        f"rank 3 (pid {standing.pid} on {running['host']}) still runs: "
        f"{running['unwritten']} events in its spool are not in these figures"
    )
    assert said in report["warnings"]
    (trace,) = tmp_path.glob("*.pfw.gz")
    # The same by the file's name; another file of the directory has nothing to do with it.
    assert said in " ".join(invoke("summary", trace).err.split())
    verdict = json.loads(invoke("why", tmp_path, "--json").out)
    assert verdict["running"] == report["running"]
    assert said in " ".join(invoke("why", tmp_path).out.replace("\n", " ").split())
    other = tmp_path / "copy.pfw.gz"
    other.write_bytes(trace.read_bytes())
    assert json.loads(invoke("summary", other, "--json").out)["running"] == []
    # Who may not look at spools is told nothing of them.
    assert json.loads(invoke("summary", trace, "--no-recover", "--json").out)["running"] == []


def test_when_it_has_ended_all_is_in_the_figures(
    tmp_path: Path, standing: subprocess.Popen[str]
) -> None:
    standing.kill()
    standing.wait()
    report = json.loads(invoke("summary", tmp_path, "--json").out)
    assert report["running"] == []
    # With the span that never ended.
    assert report["events"] == WRITTEN + UNWRITTEN + 1


def test_many_processes_are_told_of_in_one_line() -> None:
    few = [RunningProcess(None, "node7", 5, 1)]
    assert told_of(few) == [
        "pid 5 on node7 still runs: 1 event in its spool is not in these figures"
    ]
    many = [RunningProcess(rank, "node7", rank, 100) for rank in range(64)]
    assert told_of(many) == [
        "64 processes still run: 6,400 events in spools are not in these figures"
    ]
