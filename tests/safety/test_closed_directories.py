"""Directories that are closed to the user: told in a line, by ours, and nothing else is lost for it.

Root is kept out of none, so the program becomes nobody where the tests are run by root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SCRIPT_LIMIT_S, clean_environment

# All is done twice, and before, as whoever runs the tests, for what is imported on the way: the
# interpreter may lie where only root gets to.
PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import dftrace_ai, dftrace_ai.inspect, dftrace_ai.live
from dftrace_ai import ai
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.cli import app
from dftrace_ai.loggers import make_loggers
from dftrace_ai.spools.recovery import adopt_dead
from typer.testing import CliRunner

def raised(call, *given, **more):
    try:
        call(*given, **more)
    except BaseException as error:
        ours = isinstance(error, dftrace_ai.DftraceError)
        return f"{type(error).__name__ if ours else repr(error)}: {error}"

def begin(**settings):
    dftrace_ai.initialize(**settings)
    dftrace_ai.finalize()

def command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, SystemExit | None), done.exception
    return {"status": done.exit_code, "out": done.stdout, "err": done.stderr}

def killed(folder, spools):
    if os.fork() == 0:
        run = dftrace_ai.initialize(log_file=folder / "t", spool_dir=spools)
        for _ in range(50):
            with ai.compute.forward:
                pass
        run.flush()
        for _ in range(50):
            with ai.compute.forward:
                pass
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()

def act(top):
    top.mkdir()
    os.chdir(top)
    MODES = {"readonly": 0o555, "closed": 0, "listed": 0o444}
    for name, mode in MODES.items():
        Path(name).mkdir()
        Path(name, "config.yaml").touch()
        Path(name).chmod(mode)
    said = {}
    for name in (*MODES, "closed/deep", "listed/deep"):
        said[name] = [
            raised(begin, log_file=f"{name}/t"),
            raised(begin, log_file="t", spool_dir=name),
            raised(make_loggers, {"local": {"config": {"log_dir": name, "run_name": "run"}}}),
        ]
    dftrace_ai.inspect.end_debug()
    said["config"] = [raised(dftrace_ai.inspect.initialize, "closed/config.yaml")]
    run = Path("runs/default/run")
    run.mkdir(parents=True)
    run.chmod(0)
    said["run"] = [raised(make_loggers, {"local": {"config": {"log_dir": "runs", "run_name": "run"}}})]

    # A process has died, and its directory may not be written any more.
    dead, spools = Path("dead"), Path("spools")
    killed(dead, spools)
    dead.chmod(0o555)
    said["recover"] = [command("recover", "dead") for _ in range(2)]
    said["spools"] = os.listdir("spools")
    said["dead"] = command("summary", "--json", "dead")
    said["looked"] = raised(dftrace_ai.live.snapshot, ["dead"])

    # Beside a directory that may be read there is one of which only the names are seen.
    with dftrace_ai.tracing(log_file="both/open/t"):
        with ai.compute.forward:
            pass
    Path("both/named").mkdir()
    (name,) = os.listdir("both/open")
    Path("both/named", name).write_bytes(Path("both/open", name).read_bytes())
    Path("both/named").chmod(0o444)
    said["both"] = command("summary", "--json", "both")
    said["named"] = [
        raised(call, ["both/named"]) for call in (open_traces, dftrace_ai.live.snapshot)
    ]
    said["adopted"] = adopt_dead("both/named")
    Path("both/closed").mkdir(mode=0)
    said["beside"] = raised(dftrace_ai.live.snapshot, ["both"])
    said["below"] = [
        raised(call, ["closed/t"]) for call in (open_traces, dftrace_ai.live.snapshot)
    ]
    said["commands"] = [
        command("recover", "closed/deep"), command("inspect", "check", "closed/config.yaml"),
        command("stuck", "closed/t"),
    ]
    return said

here = Path.cwd()
act(here / "warm")
os.chdir(here)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps(act(here / "tried")))
"""


@pytest.fixture(scope="module")
def said() -> Iterator[Any]:
    # Not in pytest's own directory, which is closed to others.
    folder = Path(tempfile.mkdtemp(prefix="dftrace-closed-"))
    folder.chmod(0o777)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=SCRIPT_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        yield json.loads(done.stdout.splitlines()[-1])
    finally:
        for place, _, _ in os.walk(folder):
            for name in os.listdir(place):
                if Path(place, name).is_dir():
                    Path(place, name).chmod(0o700)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["readonly", "closed", "listed", "closed/deep", "listed/deep"])
def test_nothing_can_be_written_there(said: Any, name: str) -> None:
    """Neither a trace nor a spool nor the log of a run; the message says what to change."""
    trace, spool, log = said[name]
    assert trace.startswith("LogDirectoryError: ")
    assert "the trace cannot be written: Permission denied" in trace
    assert "log_file or DFTRACE_LOG_FILE" in trace
    assert spool.startswith("LogDirectoryError: ")
    assert "spool_dir or DFTRACE_SPOOL_DIR" in spool
    assert log.startswith("LogDirectoryError: ")
    assert name in log
    assert log.endswith("Permission denied; choose another place with log_dir")


def test_a_run_of_the_name_that_may_not_be_read(said: Any) -> None:
    (log,) = said["run"]
    assert log.startswith("LogDirectoryError: ")
    assert "runs/default/run: cannot be read: Permission denied" in log


def test_a_config_that_may_not_be_read(said: Any) -> None:
    """It is no missing one, which would be no config."""
    (told,) = said["config"]
    assert told.startswith("InspectValueError: closed/config.yaml: ")
    assert "Permission denied" in told


def test_a_dead_process_in_a_directory_that_is_only_read(said: Any) -> None:
    """Its trace, a file of the user's, is completed; that its marker stays is told once."""
    first, second = said["recover"]
    assert first["status"] == 1
    assert "1 trace recovered" in first["out"]
    assert "its trace is complete, and it cannot be removed: Permission denied" in first["err"]
    assert (second["status"], second["err"]) == (0, "")
    assert "nothing to recover" in second["out"]
    assert said["spools"] == []
    assert (said["dead"]["status"], said["dead"]["err"]) == (0, "")
    assert [row["count"] for row in json.loads(said["dead"]["out"])["spans"]] == [100]
    # Nothing runs there, on no host.
    assert (
        said["looked"]
        == "TraceError: dead: nothing runs here: 1 trace, which `dftrace summary` reads"
    )


def test_one_closed_directory_does_not_hide_the_others(said: Any) -> None:
    assert said["both"]["status"] == 1
    assert "/named/" in said["both"]["err"]
    assert "Permission denied" in said["both"]["err"]
    assert json.loads(said["both"]["out"])["events"] == 1
    assert not any(said["adopted"])
    for told in said["named"]:
        assert told.startswith("TraceError: ")
    assert said["beside"] == "TraceError: both/closed: cannot be listed: Permission denied"


def test_what_lies_in_a_closed_directory(said: Any) -> None:
    assert said["below"] == ["TraceError: closed/t: cannot be read: Permission denied"] * 2
    recover, check, stuck = said["commands"]
    assert (recover["status"], check["status"], stuck["status"]) == (2, 2, 1)
    for told, name in (
        (recover, "closed/deep"),
        (check, "closed/config.yaml"),
        (stuck, "closed/t"),
    ):
        assert told["err"] == f"dftrace: {name}: cannot be read: Permission denied\n"
