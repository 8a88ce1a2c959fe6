"""A process that was killed: the next command that reads its directory completes its trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from conftest import clean_environment
from perfetto.trace_file import read

VICTIM = """
import signal, sys
import dftrace_ai
from dftrace_ai import ai

dftrace_ai.initialize(log_file=sys.argv[1] + "/t")
for step in range(2000):
    with ai.compute.forward(step=step):
        pass
ai.comm.all_reduce.start()
print("ready", flush=True)
signal.pause()
"""


def dftrace(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dftrace_ai.cli", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=clean_environment(), timeout=120
    )


def test_summary_completes_the_trace_of_a_killed_process(tmp_path: Path) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "ready\n"
    alive = dftrace("summary", str(tmp_path)) if any(tmp_path.glob("*.pfw.gz")) else None
    assert alive is None or "completed" not in alive.stderr
    os.kill(victim.pid, signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    victim.stdout.close()

    first = dftrace("validate", str(tmp_path))
    assert first.returncode == 0, first.stderr
    assert "completed" in first.stderr
    (path,) = tmp_path.glob("*.pfw.gz")
    trace = read(path)
    assert sorted(e.user["step"] for e in trace.named("forward")) == list(range(2000))
    assert [e.name for e in trace.of("B")] == ["all_reduce"]
    assert trace.footer["ended"] == "died"
    assert list(tmp_path.glob("*.spool-at")) == []

    again = dftrace("summary", str(tmp_path))
    assert (again.returncode, again.stderr) == (0, "")
