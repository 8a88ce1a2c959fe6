"""Two processes of one number on two hosts, one directory: nobody writes or reads the other's files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
from conftest import clean_environment, read_all, trace_files
from perfetto.trace_file import read

import dftrace_ai.spools.recovery
from stress.judge import judge_counts
from stress.pressure.shim import Shim

if TYPE_CHECKING:
    from stress.conftest import FaultRow
    from stress.pressure.program import Pressed

RECORDS = """
run = dftrace_ai.initialize(log_file=sys.argv[1] + "/trace", spool_dir=sys.argv[2], compression="none")
spans(100)
run.flush()
with ai.pipeline.train:
    print("ready", flush=True)
    sys.stdin.readline()
    spans(100)
dftrace_ai.finalize()
"""
ADOPTS = """
import json, sys
from dftrace_ai.spools.recovery import adopt_dead
found = adopt_dead(sys.argv[1])
print(json.dumps([len(found.finished), len(found.alive), len(found.failed)]))
"""


class Host:
    """A host of its own by the kernel's namespaces: the first process on each has the same number.

    `begin`: what its shell does first, such as giving it a name; `options`: those of `unshare`.
    """

    def __init__(self, environment: dict[str, str], begin: str, options: Sequence[str]) -> None:
        """Describe it; nothing is started."""
        self.environment = environment
        self.shell = [*options, "sh", "-c", f'{begin} && exec "$@"', "sh", sys.executable]

    def command(self, source: Path, *arguments: Any) -> list[str]:
        """What runs a Python file there."""
        return [*self.shell, str(source), *map(str, arguments)]

    def run(self, source: Path, *arguments: Any) -> str:
        """Run it there to its end; what it printed."""
        done = subprocess.run(
            self.command(source, *arguments),
            env=clean_environment() | self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()

    @contextmanager
    def recording(self, source: Path, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
        """A process there that has recorded and goes on when it is told to; killed at the end."""
        process = subprocess.Popen(
            self.command(source, *arguments),
            env=clean_environment() | self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert _line(process.stdout) == "ready\n"
            yield process
        finally:
            kill_all(process)
            process.communicate()


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill the process and, where `unshare` stands in front of it, the one that it started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for child in children.read_text().split() if children.exists() else ():
        os.kill(int(child), 9)
    process.kill()


@cache
def namespaces() -> tuple[str, ...]:
    """The command that gives a process a host of its own: as root, or as a user that is one there."""
    own_host = ("-u", "-p", "-f", "-m", "--mount-proc")
    for command in (("unshare", *own_host), ("unshare", "-U", "-r", *own_host)):
        with suppress(FileNotFoundError):
            probe = [*command, "hostname", "probe"]
            if not subprocess.run(probe, capture_output=True, check=False).returncode:
                return command
    pytest.skip("the kernel gives this user no namespaces")


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Path, Path]:
    """What records, and what reads."""
    from stress.pressure.program import PREAMBLE

    records, adopts = tmp_path / "records.py", tmp_path / "adopts.py"
    records.write_text(PREAMBLE + RECORDS)
    adopts.write_text(ADOPTS)
    return records, adopts


@pytest.fixture
def hosts(pressed_environment: dict[str, str]) -> tuple[Host, Host]:
    """Two hosts."""
    alpha, beta = (
        Host(pressed_environment, f"hostname {name}", namespaces()) for name in ("alpha", "beta")
    )
    return alpha, beta


def test_one_number_on_two_hosts(
    hosts: tuple[Host, Host], programs: tuple[Path, Path], traces: Path, tmp_path: Path
) -> None:
    """At the same time, into the same directories: two files, each whole."""
    records, _ = programs
    spools = tmp_path / "spools"
    spools.mkdir()
    alpha, beta = hosts
    with (
        alpha.recording(records, traces, spools) as on_alpha,
        beta.recording(records, traces, spools) as on_beta,
    ):
        for process in (on_alpha, on_beta):
            _, stderr = process.communicate("go\n", timeout=60)
            assert process.returncode == 0, stderr
    found = {t.header["host"]: t for t in read_all(trace_files(traces))}
    assert set(found) == {"alpha", "beta"}
    assert len({t.header["pid"] for t in found.values()}) == 1
    for host, trace in found.items():
        assert f"-{host}-" in trace.path.name
        assert trace.names == {"forward": 200, "train": 1}
    assert list(spools.iterdir()) == []


def test_a_host_finishes_only_its_own(
    hosts: tuple[Host, Host], programs: tuple[Path, Path], traces: Path, tmp_path: Path
) -> None:
    """Of another host's process nothing can be known, dead or alive."""
    records, adopts = programs
    spools = tmp_path / "spools"
    spools.mkdir()
    alpha, beta = hosts
    with alpha.recording(records, traces, spools), beta.recording(records, traces, spools) as alive:
        kept = {path: path.read_bytes() for path in traces.iterdir()}
        assert beta.run(adopts, traces) == "[0, 2, 0]"
        assert {path: path.read_bytes() for path in traces.iterdir()} == kept
        assert len(list(spools.iterdir())) == 2
        assert alive.poll() is None
    # Both are dead now.
    assert beta.run(adopts, traces) == "[1, 1, 0]"
    assert [path.name.split("-")[1] for path in traces.glob("*.spool-at")] == ["alpha"]
    assert len(list(spools.iterdir())) == 1
    assert alpha.run(adopts, traces) == "[1, 0, 0]"
    assert list(spools.iterdir()) == list(traces.glob("*.spool-at")) == []
    for trace in read_all(trace_files(traces)):
        assert trace.names == {"forward": 100, "train": 1}


@pytest.mark.parametrize("spool_is_seen", [True, False])
def test_a_container_of_the_same_host_name(
    pressed_environment: dict[str, str],
    programs: tuple[Path, Path],
    traces: Path,
    tmp_path: Path,
    spool_is_seen: bool,
) -> None:
    """It has numbers of its own, and perhaps a /dev/shm: whoever looks from outside leaves it be."""
    options = [part for part in namespaces() if part != "-u"]
    records, _ = programs
    spools = tmp_path / "spools"
    spools.mkdir()
    begin = "true" if spool_is_seen else f"mount -t tmpfs x {spools}"
    container = Host(pressed_environment, begin, options)
    with container.recording(records, traces, spools) as process:
        kept = {path: path.read_bytes() for path in traces.iterdir()}
        found = dftrace_ai.spools.recovery.adopt_dead(traces)
        assert (found.finished, len(found.alive), found.failed) == ([], 1, [])
        assert {path: path.read_bytes() for path in traces.iterdir()} == kept
        _, stderr = process.communicate("go\n", timeout=60)
        assert process.returncode == 0, stderr
    (trace,) = read_all(trace_files(traces))
    assert trace.names == {"forward": 200, "train": 1}
    assert list(spools.iterdir()) == list(traces.glob("*.spool-at")) == []


def test_a_stem_that_holds_this_hosts_name(
    hosts: tuple[Host, Host], programs: tuple[Path, Path], traces: Path, tmp_path: Path
) -> None:
    """Of a trace called run-beta-x on alpha, beta knows nothing all the same."""
    _, adopts = programs
    _, beta = hosts
    marker = traces / "run-beta-x-alpha-17.spool-at"
    marker.write_text("/dev/shm/dftrace-0123456789abcdef-17-1-0.spool\n")
    assert beta.run(adopts, traces) == "[0, 1, 0]"
    assert marker.exists()


def test_names_that_somebody_takes_in_the_last_moment(
    pressed: Pressed, shim: Shim, traces: Path
) -> None:
    """Between naming a marker or a trace and making it, somebody else makes it, twice."""
    done = pressed(
        """
        shim = Shim()
        with dftrace_ai.tracing(flush_interval_ms=60_000) as run:
            shim.stolen_names = 2  # of the marker
            spans(100)
            until(lambda: not shim.stolen_names)
            shim.stolen_names = 2  # of the trace
            run.flush()
        say(left=shim.stolen_names, path=run.path)
        """
    )
    (said,) = done.said
    assert said["left"] == 0
    stolen = [path for path in traces.iterdir() if path.read_bytes() == b"precious"]
    assert len(stolen) == 4
    trace = read(Path(said["path"]))
    assert trace.names == {"forward": 100}
    assert trace.path.name.endswith(f"-{done.pid}-2.pfw.gz")


def test_a_spool_of_that_name_is_there(pressed: Pressed, traces: Path) -> None:
    """Another's file stays as it is, and the process takes another name."""
    done = pressed(
        """
        shim = Shim()
        with dftrace_ai.tracing(spool_dir=Path(os.environ["PRESSURE_SHIM_FOLDER"])) as run:
            shim.stolen_names = 1
            spans(100)
        """
    )
    stolen = [path for path in traces.iterdir() if path.name.endswith(".spool")]
    assert [path.read_bytes() for path in stolen] == [b"precious"]
    assert done.trace().names == {"forward": 100}


@pytest.mark.parametrize("nameless", [True, False], ids=["tmpfile", "in-place"])
def test_killed_while_the_marker_is_written(
    pressed: Pressed, traces: Path, spools: Path, nameless: bool, fault_row: FaultRow
) -> None:
    """No marker is left that says nothing, or the next command takes it away."""
    pressed(
        f"""
        shim = Shim()
        shim.no_tmpfile = {int(not nameless)}
        dftrace_ai.initialize(spool_dir="{spools}")
        shim.marker_kills = 1
        shim.server_away = 1
        spans(100)
        until(lambda: shim.hanging)
        shim.server_away = 0
        time.sleep(60)  # the drain thread is killed, and everything with it
        """,
        status=-9,
    )
    left = [path.stat().st_size for path in traces.glob("*.spool-at")]
    assert left == ([] if nameless else [0])
    found = dftrace_ai.spools.recovery.adopt_dead(traces)
    assert (found.failed, found.alive) == ([], [])
    assert list(traces.glob("*.spool-at")) == []
    assert list(spools.iterdir()) == []
    assert len(found.finished) == 1
    how = "under no name yet" if nameless else "under its name"
    with fault_row(f"kill -9 while the marker is written, {how}") as row:
        row.add(judge_counts(read_all(trace_files(traces)), {"forward": 100}))


@pytest.mark.parametrize("nameless", [True, False], ids=["tmpfile", "in-place"])
def test_killed_while_the_spool_is_made(
    pressed: Pressed, shim: Shim, traces: Path, nameless: bool
) -> None:
    """None is left that says nothing of itself, or the next command takes it away."""
    left = []
    # At the look for a place, before the header, and once the spool is whole.
    for reservation in (1, 2, 3):
        pressed(
            f"""
            shim = Shim()
            dftrace_ai.initialize(spool_dir="{traces}")
            shim.no_tmpfile = {int(not nameless)}
            shim.spool_kills = {reservation}
            spans(1)
            """,
            status=-9,
        )
        left.append(len(list(traces.glob("*.spool"))))
        found = dftrace_ai.spools.recovery.adopt_dead(traces)
        assert (found.failed, found.alive, found.finished) == ([], [], [])
        assert list(traces.iterdir()) == []
    assert left == ([0, 0, 1] if nameless else [1, 1, 1])


def test_killed_while_a_directory_is_tried(pressed: Pressed, shim: Shim, traces: Path) -> None:
    shim.spool_kills = 1
    pressed("dftrace_ai.initialize()", status=-9)
    assert list(traces.iterdir()) == []
