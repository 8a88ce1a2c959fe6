"""Hosts that tell little of themselves, or take no spool in /dev/shm, and directories whose names are no text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import RunScript, clean_environment, read_all, trace_files
from perfetto.trace_file import read

import dftrace_ai.spools.recovery

RECORD = """
import os, sys
import dftrace_ai
from dftrace_ai import ai

run = dftrace_ai.initialize(system_counters_s=0.01)
with ai.compute.forward:
    pass
"""


def test_where_proc_is_hidden(tmp_path: Path) -> None:
    """The run, its recovery and its commands do without; facts of the host are left out."""
    out = tmp_path / "out"
    program = tmp_path / "program.py"
    program.write_text(
        RECORD + "child = os.fork()\nif not child:\n    with ai.data.item: pass\n    os._exit(0)\n"
        "os.waitpid(child, 0)\ndftrace_ai.finalize()\nprint(run.path)\n"
    )
    bare = 'mount -t tmpfs none /proc && exec "$0" "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", bare, sys.executable, str(program)],
        env=clean_environment() | {"DFTRACE_LOG_FILE": str(out / "trace")},
        capture_output=True,
        text=True,
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("only root may hide /proc")
    assert done.returncode == 0, done.stderr
    traces = read_all(trace_files(out))
    assert sorted(str(t.path) for t in traces)[0] == min(done.stdout.split())
    assert {name for t in traces for name in t.names} >= {"forward", "item"}
    own = next(t for t in traces if t.names["forward"])
    assert "memory_bytes" not in own.header
    assert "system" in own.header
    assert done.stderr.count("there are no counters of CPU") == 1


OUTER_PROC = """
import json, os, sys
import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.live import snapshot
from dftrace_ai.spools.recovery import adopt_dead

os.readlink("/proc/self") != str(os.getpid()) or sys.exit("unshare: it is its own")
run = dftrace_ai.initialize(spool_dir=sys.argv[1])
with ai.compute.forward:
    (seen,) = snapshot([sys.argv[2]]).processes
    found = adopt_dead(sys.argv[2])
    os.unlink(run.stats()["spool_path"])
    gone = adopt_dead(sys.argv[2])
dftrace_ai.finalize()
print(json.dumps([seen.state, len(found.alive), len(gone.alive), found.failed + gone.failed]))
"""


def test_where_proc_is_that_of_another_container(tmp_path: Path) -> None:
    """Its numbers mean other processes, or none, which live or not: only the lock tells."""
    out = tmp_path / "out"
    # Above all numbers that are given out there: nobody has it outside.
    number = "echo 4100000 > /proc/sys/kernel/ns_last_pid && " + '"$0" "$@"'
    program = [sys.executable, "-c", OUTER_PROC, str(tmp_path / "spools"), str(out)]
    done = subprocess.run(
        ["unshare", "-p", "-f", "sh", "-c", number, *program],
        env=clean_environment() | {"DFTRACE_LOG_FILE": str(out / "trace")},
        capture_output=True,
        text=True,
    )
    if "unshare" in done.stderr or "ns_last_pid" in done.stderr:
        pytest.skip("only root may make a container")
    assert done.returncode == 0, done.stderr
    assert done.stdout == '["alive", 1, 1, []]\n'
    assert [trace.names for trace in read_all(trace_files(out))] == [{"forward": 1}]


def test_where_nothing_about_the_host_can_be_read(run_script: RunScript) -> None:
    done = run_script(
        """
import builtins, os
import psutil

def refuse(*_, **__):
    raise PermissionError("hidden")

for name in ("virtual_memory", "cpu_count", "cpu_times", "disk_io_counters",
             "net_io_counters", "Process"):
    setattr(psutil, name, refuse)

def but_for(function):
    hidden = ("/proc/meminfo", "/proc/cpuinfo", "/sys/")
    return lambda path, *a, **k: (refuse if str(path).startswith(hidden) else function)(path, *a, **k)

builtins.open, os.listdir = but_for(open), but_for(os.listdir)
"""
        + RECORD
    )
    trace = done.trace()
    assert trace.names == {"forward": 1}
    assert not trace.of("C")
    assert not {"memory_bytes", "cores"} & trace.header.keys()
    assert "Traceback" not in done.stderr


def test_a_directory_whose_name_is_no_text(tmp_path: Path, run_script: RunScript) -> None:
    """Not UTF-8, and yet a path: written, killed, looked at, recovered and summarised."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/d\xff\xfe\xe9")
    Path(folder).mkdir()
    done = run_script(
        """
        import os, signal, subprocess, sys
        import dftrace_ai
        from dftrace_ai import ai

        run = dftrace_ai.initialize(flush_interval_ms=60_000)
        with ai.compute.forward:
            pass
        run.flush()
        assert os.path.exists(run.path), run.path
        assert run.stats()["trace_path"] == run.path
        CHILD = "from dftrace_ai import ai\\nwith ai.compute.step: pass"
        subprocess.run([sys.executable, "-c", CHILD], check=True)
        if not os.fork():
            with ai.data.item:
                os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
        dftrace_ai.finalize()
        assert os.path.exists(run.path)
        dftrace_ai.initialize()
        with ai.compute.backward:
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-9,
        env={
            "DFTRACE_LOG_FILE": folder + "/t\udcff",
            "DFTRACE_SPOOL_DIR": folder,
            "DFTRACE_DATA_DIR": folder,
        },
    )
    assert "Traceback" not in done.stderr
    recovery = dftrace_ai.spools.recovery.adopt_dead(folder)
    assert recovery.failed == []
    assert len(recovery.finished) == 1
    assert os.path.exists(recovery.finished[0])
    assert [e for e in os.listdir(folder) if ".spool" in e] == []
    traces = read_all(trace_files(Path(folder)))
    assert sorted(name for t in traces for name in t.names) == [
        *("backward", "forward", "item", "step")
    ]
    for command in ("summary", "validate"):
        told = subprocess.run(
            [sys.executable, "-m", "dftrace_ai.cli", command, folder],
            env=clean_environment(),
            capture_output=True,
        )
        assert told.returncode == 0, (command, told.stderr)


def test_a_current_directory_that_is_gone(run_script: RunScript) -> None:
    done = run_script("""
        import os, subprocess, sys, tempfile
        gone = tempfile.mkdtemp()
        os.chdir(gone)
        os.rmdir(gone)
        import dftrace_ai
        from dftrace_ai import ai

        with dftrace_ai.tracing():
            with ai.compute.forward:
                pass
            subprocess.run([sys.executable, "-c", "from dftrace_ai import ai\\nai.instant('x')"],
                           check=True)
        try:
            dftrace_ai.initialize(log_file="relative")
        except dftrace_ai.LogDirectoryError as error:
            assert "absolute path" in str(error)
    """)
    own, (child,) = done.split()
    assert own.names == {"forward": 1}
    assert child.footer["instants"] == 1


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
