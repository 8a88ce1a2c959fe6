"""The spool of a living process is removed, by a tidy colleague, or cannot be at its end."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import RunScript, clean_environment
from perfetto.trace_file import read

from dftrace_ai.live import snapshot
from dftrace_ai.spools.recovery import adopt_dead
from stress.damage import TRAINED
from stress.judge import judge_counts

if TYPE_CHECKING:
    from stress.conftest import FaultRow
    from stress.pressure.program import Pressed

LIVING = """
run = dftrace_ai.initialize(spool_dir="spools", flush_interval_ms=5)
trained(1000)
run.flush()
print("ready", run.stats()["spool_path"], flush=True)
for line in sys.stdin:
    trained(5000)
    run.flush()
    print(run.stats()["dropped"], flush=True)
dftrace_ai.finalize()
"""


class Living:
    """A process that records, with pipes to it."""

    def __init__(self, folder: Path) -> None:
        """Start it, and wait until it has written something."""
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINED + LIVING],
            cwd=folder,
            env={**clean_environment(), "DFTRACE_LOG_FILE": str(self.out / "trace")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ready, self.spool = self._line().split()
        assert ready == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def train(self) -> int:
        """Record more, and return how many events were dropped by then."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return int(self._line())

    def markers(self) -> list[Path]:
        """The markers in the directory of the trace."""
        return list(self.out.glob("*.spool-at"))

    def commanded(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `dftrace` on the directory of the trace."""
        return subprocess.run(
            [sys.executable, "-m", "dftrace_ai.cli", *command, str(self.out)],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def test_it_is_told_as_alive_and_completes_its_trace(tmp_path: Path, fault_row: FaultRow) -> None:
    living = Living(tmp_path)
    os.unlink(living.spool)
    recovered = living.commanded("recover", "--json")
    assert recovered.returncode == 0
    assert json.loads(recovered.stdout)["alive"] == [living.spool]
    summed_up = living.commanded("summary")
    assert summed_up.returncode == 0
    assert "the process still runs" in summed_up.stderr
    assert "is gone" not in summed_up.stderr
    told = f"{living.spool}: was removed while its process runs, which cannot be looked into"
    looked = living.commanded("stuck")
    assert (looked.returncode, told in looked.stderr) == (2, True)
    assert "is gone" not in looked.stderr
    other = Living(tmp_path / "other")
    (problem,) = snapshot([living.out, other.out]).problems
    assert problem.startswith(told)
    looked = living.commanded("stuck", str(other.out))
    assert (looked.returncode, told in looked.stdout) == (0, True)
    other.process.communicate(timeout=60)
    assert len(living.markers()) == 1
    # The spool grows on, out of sight.
    assert [living.train() for _ in range(3)] == [0, 0, 0]
    assert len(living.markers()) == 1
    _, complaint = living.process.communicate(timeout=60)
    assert complaint.count("was removed while its process lives") == 1
    assert len(complaint.splitlines()) == 1
    assert living.markers() == []
    (path,) = living.out.iterdir()
    trace = read(path)
    assert trace.names == {"forward": 16_000}
    assert trace.footer["ended"] == "finalize"
    with fault_row("the spool is removed, and the process goes on") as row:
        row.add(judge_counts([trace], {"forward": 16_000}))


def test_killed_afterwards_it_is_told_as_lost(tmp_path: Path) -> None:
    living = Living(tmp_path)
    os.unlink(living.spool)
    living.process.send_signal(signal.SIGKILL)
    living.process.communicate(timeout=60)
    found = adopt_dead(living.out)
    assert found.alive == []
    assert found.failed == [f"{living.spool}: is gone; what was not yet in the trace is lost"]
    assert living.markers() == []


def test_with_a_full_disk_at_the_end_the_spool_is_made_again(
    pressed: Pressed, fault_row: FaultRow
) -> None:
    """What the trace cannot take is in memory only, and would go with the process."""
    done = pressed(
        f"""
        shim = Shim()
        run = dftrace_ai.initialize(spool_dir="spools", flush_interval_ms=5)
        spans(5000)
        run.flush()
        shim.write_errno = {errno.ENOSPC}
        spans(5000)
        Path(run.stats()["spool_path"]).unlink()
        dftrace_ai.finalize()
        shim.write_errno = 0
        say(**{{key: run.stats()[key] for key in ("spool_path", "lost_lines")}})
        """
    )
    (said,) = done.said
    assert said["lost_lines"] > 0
    assert f"{said['lost_lines']} events are kept in {said['spool_path']}" in done.stderr
    found = adopt_dead(done.folder)
    assert (len(found.finished), found.failed) == (1, [])
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 10_000}
    assert not Path(said["spool_path"]).exists()
    with fault_row("the spool is removed, and the disk of the trace is full at the end") as row:
        row.add(judge_counts([trace], {"forward": 10_000}))


def test_with_no_place_for_it_either_it_is_told_as_lost(pressed: Pressed) -> None:
    done = pressed(
        f"""
        shim = Shim()
        run = dftrace_ai.initialize(spool_dir="spools", flush_interval_ms=5)
        spans(500)
        run.flush()
        shim.write_errno = {errno.ENOSPC}
        spans(500)
        Path(run.stats()["spool_path"]).unlink()
        Path("spools").rmdir()
        dftrace_ai.finalize()
        say(**{{key: run.stats()[key] for key in ("spool_path", "lost_lines")}})
        """
    )
    (said,) = done.said
    assert said["spool_path"] == ""
    assert f"{said['lost_lines']} events are lost, since the spool was removed" in done.stderr


# A child for each directory that is closed to it in the middle of its run. Root is kept out of none.
CLOSED = """
for closed in ("out", "spools"):
    here = Path(closed).absolute()
    places = {"out": here / "out", "spools": here / "spools"}
    for place in places.values():
        place.mkdir(parents=True)
        place.chmod(0o777)
    child = os.fork()
    if not child:
        run = dftrace_ai.initialize(log_file=places["out"] / "t", spool_dir=places["spools"])
        trained(100)
        run.flush()
        places[closed].chmod(0)
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        trained(100)
        run.flush()
        dftrace_ai.finalize()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    places[closed].chmod(0o700)
    print(json.dumps({name: str(place) for name, place in places.items()}), flush=True)
"""


def test_a_directory_is_closed_to_the_run_meanwhile(
    run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_script(TRAINED + CLOSED)
    for line in done.stdout.splitlines():
        places = json.loads(line)
        monkeypatch.setenv("DFTRACE_SPOOL_DIR", places["spools"])
        found = adopt_dead(places["out"])
        (trace,) = found.finished
        assert (found.ended_in_order, found.failed, found.damaged) == ([trace], [], [])
        assert read(Path(trace)).names == {"forward": 200}
        left = [name for place in places.values() for name in os.listdir(place)]
        assert left == [trace.rpartition("/")[2]]
    assert len(done.stdout.splitlines()) == 2
    assert "was removed" not in done.stderr
    assert done.stderr.count("the trace is complete, and the next dftrace command") == 2
