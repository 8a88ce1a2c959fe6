"""Fixtures that run a program whose disk, clock or memory is under the control of a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Outcome, RunScript

from stress.pressure.disk import Disk, small_disk
from stress.pressure.shim import Shim

HERE = Path(__file__).parent
# What every program begins with. It makes spans that need no room beside their 64 bytes.
PREAMBLE = """
import json, os, signal, sys, threading, time
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai
from stress.pressure.disk import Disk
from stress.pressure.shim import Shim

def until(what, limit_s=100):
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.002)

def spans(n, node=ai.compute.forward):
    for _ in range(n):
        with node:
            pass

def refused(run):
    try:
        run.flush()
    except OSError as error:
        return error.errno
    return 0

def say(**facts):
    print(json.dumps(facts), flush=True)
"""

Pressed = Callable[..., Outcome]


@pytest.fixture(scope="session")
def shim_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim."""
    library = tmp_path_factory.mktemp("shim") / "pressure_shim.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run(
        [compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        + ["-o", str(library), str(HERE / "shim.c"), "-ldl"],
        check=True,
    )
    return library


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    """The words of the programs of this test."""
    return Shim.create(tmp_path / "words")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Where the programs of this test put their traces, unless they have a disk of their own."""
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@pytest.fixture
def spools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where readers in the test look for spools; programs get it as DFTRACE_SPOOL_DIR."""
    folder = tmp_path / "spools"
    folder.mkdir()
    monkeypatch.setenv("DFTRACE_SPOOL_DIR", str(folder))
    return folder


@pytest.fixture
def pressed_environment(shim: Shim, shim_library: Path, traces: Path) -> dict[str, str]:
    """What makes a program one that the test controls."""
    beside = os.environ.get("PYTHONPATH")
    before = os.environ.get("LD_PRELOAD")  # of a sanitizer, which has to come first
    return {
        "LD_PRELOAD": " ".join([before] * bool(before) + [str(shim_library)]),
        "PRESSURE_SHIM": str(shim.path),
        "PRESSURE_SHIM_FOLDER": str(traces),
        "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent)] + ([beside] if beside else [])),
        "DFTRACE_LOG_FILE": str(traces / "trace"),
    }


@pytest.fixture
def pressed(run_script: RunScript, pressed_environment: dict[str, str], traces: Path) -> Pressed:
    """Runs source behind PREAMBLE in a process that the shim is loaded into.

    `disk` becomes the place of the traces. Further arguments are those of `run_script`.
    """

    def run(
        source: str, *, disk: Disk | None = None, env: dict[str, str] | None = None, **more: Any
    ) -> Outcome:
        folder = disk.path if disk is not None else traces
        environment = {**pressed_environment, "DFTRACE_LOG_FILE": str(folder / "trace")}
        if disk is not None:
            environment |= disk.environment
        done = run_script(PREAMBLE + textwrap.dedent(source), env=environment | (env or {}), **more)
        return replace(done, folder=folder)

    return run


@pytest.fixture
def tmpfs(tmp_path: Path, shim: Shim) -> Iterator[Disk]:
    """A disk of a mebibyte: a file system of its own where this process may mount one."""
    with small_disk(tmp_path / "disk", real=True) as made:
        yield made


@pytest.fixture
def simulated_disk(tmp_path: Path, shim: Shim) -> Iterator[Disk]:
    """A disk of which the shim says when it is full: to the byte, which no file system is."""
    with small_disk(tmp_path / "disk", real=False) as made:
        yield made


@pytest.fixture(params=["tmpfs", "simulated_disk"])
def disk(request: pytest.FixtureRequest) -> Disk:
    """Each of the two."""
    made: Disk = request.getfixturevalue(request.param)
    return made
