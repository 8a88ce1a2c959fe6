"""The number of a dead process is that of another one by the time its trace is completed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment, read_all, trace_files

# The first process of a container, which gives out numbers as it likes.
PROGRAM = """
import json, os, signal, subprocess
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.live import snapshot
from dftrace_ai.spools.recovery import adopt_dead

subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
NUMBER = 5000
OUT, SPOOLS = Path("out").absolute(), Path("spools").absolute()

def recorded(spans):
    def body():
        dftrace_ai.initialize(log_file=OUT / "trace", spool_dir=SPOOLS, flush_interval_ms=60_000)
        for _ in range(spans):
            with ai.compute.forward:
                pass
    return body

def start():
    # In hundredths of a second since the machine started.
    return Path(f"/proc/{NUMBER}/stat").read_bytes().rpartition(b")")[2].split()[19]

def begun(body, unlike=None):
    '''Of that number, and not of the hundredth of a second in which another one began.'''
    while True:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(NUMBER - 1))
        ready, done = os.pipe()
        if not (child := os.fork()):
            body()
            os.write(done, b"x")
            signal.pause()
        os.close(done)
        assert os.read(ready, 1) == b"x"
        os.close(ready)
        assert child == NUMBER
        if start() != unlike:
            return start()
        killed()

def killed():
    os.kill(NUMBER, signal.SIGKILL)
    os.waitpid(NUMBER, 0)

def found():
    recovery = adopt_dead(OUT, spool_dir=SPOOLS)
    print(json.dumps([len(recovery.finished), len(recovery.alive), len(recovery.failed)]), flush=True)

# The other one records nothing.
first = begun(recorded(100))
killed()
second = begun(list, unlike=first)
print(json.dumps([seen.state for seen in snapshot([OUT]).processes]), flush=True)
found()
killed()
# The spool is gone.
third = begun(recorded(200), unlike=second)
killed()
(spool,) = SPOOLS.iterdir()
spool.unlink()
fourth = begun(list, unlike=third)
found()
killed()
# The other one records in the same directory, and is killed in its turn.
fifth = begun(recorded(300), unlike=fourth)
killed()
begun(recorded(400), unlike=fifth)
found()
found()
killed()
found()
print(json.dumps([path.name for path in [*SPOOLS.iterdir(), *OUT.glob("*.spool-at")]]))
"""


def test_it_is_told_from_the_other_by_when_it_began(tmp_path: Path) -> None:
    """Its trace is completed though the number lives; the other one is left alone."""
    (tmp_path / "spools").mkdir()
    done = subprocess.run(
        ["unshare", "-p", "-m", "-f", sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    if any(word in done.stderr for word in ("unshare", "mount:", "ns_last_pid")):
        pytest.skip("only root may make a container")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        ["dead"],
        [1, 0, 0],
        [0, 0, 1],
        [1, 1, 0],
        [0, 1, 0],
        [1, 0, 0],
        [],
    ]
    traces = read_all(trace_files(tmp_path / "out"))
    assert sorted(trace.names["forward"] for trace in traces) == [100, 300, 400]
