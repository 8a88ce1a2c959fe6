"""A /dev/shm that is roomy, small or read-only, takes no file, or goes away while a run is on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment
from perfetto.trace_file import read

PROGRAM = """
import json, subprocess, sys
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai

SHM = "/dev/shm"
SPANS = 3000

def recorded():
    for _ in range(SPANS):
        with ai.compute.forward:
            pass

def mounted(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "x", SHM], check=True)

def unmounted():
    subprocess.run(["umount", "-l", SHM], check=True)

def covered():
    mounted("size=64m")

def filled():
    try:
        with open(f"{SHM}/of-others", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        pass

CASES = {
    "roomy": ("size=64m", list),
    "small": ("size=1m", list),
    "read-only": ("size=64m,ro", list),
    "takes-no-file": ("size=64m,nr_inodes=1", list),
    "unmounted": ("size=64m", unmounted),
    "covered": ("size=64m", covered),
    "filled": ("size=4m", filled),
}
for name, (options, change) in CASES.items():
    mounted(options)
    out = Path("out", name).absolute()
    run = dftrace_ai.initialize(
        log_file=out / "trace", spool_bytes=1 << 20, flush_interval_ms=60_000
    )
    recorded()
    place = Path(run.stats()["spool_path"]).parent
    change()
    recorded()
    dftrace_ai.finalize()
    told = [name, place == out or str(place), run.stats()["error"]]
    print(json.dumps([*told, run.stats()["dropped"] - 2 * SPANS]), flush=True)
"""


def test_the_run_goes_on_and_each_event_is_there_or_counted(tmp_path: Path) -> None:
    """Where /dev/shm takes no spool it lies beside the trace, on whatever grounds it was refused."""
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("only root may mount a /dev/shm of its own")
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line[:3] for line in said] == [
        ["roomy", "/dev/shm", ""],
        ["small", True, ""],
        ["read-only", True, ""],
        ["takes-no-file", True, ""],
        ["unmounted", "/dev/shm", ""],
        ["covered", "/dev/shm", ""],
        ["filled", "/dev/shm", ""],
    ]
    for name, *_, kept in said:
        (path,) = (tmp_path / "out" / name).iterdir()
        assert read(path).names["forward"] == -kept
        assert kept == -6000 or name == "filled"
