"""A directory of traces is copied before a dead run in it is recovered."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from conftest import Outcome, RunScript, trace_files
from perfetto.trace_file import read
from safety.commands import invoke

from dftrace_ai.spools.recovery import adopt_dead

# Each of the first three has a process that was killed; that of the last one runs.
RUNS = """
import os, signal
import dftrace_ai
from dftrace_ai import ai

def trained(steps):
    for step in range(steps):
        with ai.compute.forward(step=step):
            pass

def recorded(name, spools):
    run = dftrace_ai.initialize(log_file=f"{name}/trace", spool_dir=spools, flush_interval_ms=60_000)
    trained(1000)
    run.flush()
    trained(2000)

for name, spools in (("out", "spools"), ("beside", "beside")):
    if os.fork() == 0:
        recorded(name, spools)
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
recorded("living", "spools")
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
dftrace_ai.finalize()
"""


def copied(folder: Path, name: str) -> Path:
    """A copy of a directory, with owners and times, as for a backup."""
    copy = folder / f"copy-of-{name}"
    subprocess.run(["cp", "-a", folder / name, copy], check=True)
    return copy


def spans(directory: Path) -> list[int]:
    """How many spans the files of a directory hold."""
    return [read(path).names["forward"] for path in trace_files(directory)]


@pytest.fixture
def runs(run_script: RunScript) -> Outcome:
    """Where the processes ran; of the living one there is a copy from when it lived."""
    folders: list[Path] = []

    def look(process: subprocess.Popen[str]) -> None:
        folder = Path(f"/proc/{process.pid}/cwd").resolve()
        copy = copied(folder, "living")
        folders.append(copy)
        assert invoke("recover", copy).out.startswith("runs, left alone: ")
        process.terminate()

    done = run_script("import signal; signal.pthread_sigmask(0, [15])\n" + RUNS, stop=look)
    assert done.stderr == ""
    return done


def test_the_spool_is_that_of_the_directory_it_names(runs: Outcome) -> None:
    """The copy that is read first takes nothing from it, and says where it belongs."""
    folder = runs.folder.parent
    out, copy = folder / "out", copied(folder, "out")
    for _ in range(2):
        done = invoke("recover", copy)
        assert done.status == 1
        (told,) = done.err.splitlines()
        assert "is a copy; the rest of its trace goes to" in told
        assert str(out) in told
    assert "is a copy" in invoke("summary", copy).err
    done = invoke("recover", "--json", out)
    assert (done.status, len(json.loads(done.out)["finished"])) == (0, 1)
    assert spans(out) == [3000]
    (failed,) = adopt_dead(copy).failed
    assert "is gone; this is a copy, and what was not yet in the trace is where" in failed
    assert invoke("recover", copy).out == "nothing to recover\n"
    # Copied again, it is whole; of both together it is said that they are one.
    assert spans(copied_anew(out, copy)) == [3000]
    (warning,) = invoke("summary", out, copy).err.splitlines()
    assert "of the same process as" in warning
    assert "what both hold is counted twice" in warning
    (warning,) = invoke("summary", folder / "living", copy, "--run", "all").err.splitlines()
    assert warning.startswith("dftrace: these are traces of 2 runs, and not of ranks of one")


def copied_anew(directory: Path, copy: Path) -> Path:
    shutil.rmtree(copy)
    shutil.copytree(directory, copy)
    return copy


def test_a_copy_on_another_file_system_is_known_by_that(runs: Outcome) -> None:
    """Where its marker got the number there that the original's has here."""
    folder = runs.folder.parent
    with TemporaryDirectory(dir="/dev/shm") as other:
        copy = Path(shutil.copytree(folder / "out", Path(other, "out")))
        if copy.stat().st_dev == folder.stat().st_dev:
            pytest.skip("what is in memory lies where the tests do")
        (marker,) = copy.glob("*.spool-at")
        (original,) = (folder / "out").glob("*.spool-at")
        here, there = (str(path.stat().st_ino) for path in (original, marker))
        marker.write_text(marker.read_text().replace(f" {here}", f" {there}"))
        assert "is a copy; the rest of its trace goes to" in invoke("recover", copy).err
        assert (len(adopt_dead(folder / "out").finished), spans(folder / "out")) == (1, [3000])
        (failed,) = adopt_dead(copy).failed
        assert "is gone; this is a copy" in failed


def test_a_copy_whose_original_is_gone_is_completed(runs: Outcome) -> None:
    """As a directory that was moved to another file system."""
    folder = runs.folder.parent
    copy = copied(folder, "out")
    shutil.rmtree(folder / "out")
    (folder / "out").mkdir()
    assert len(adopt_dead(copy).finished) == 1
    assert spans(copy) == [3000]


@pytest.mark.parametrize("first", [0, 1])
def test_a_spool_that_was_copied_along_completes_the_copy(runs: Outcome, first: int) -> None:
    folder = runs.folder.parent
    both = [folder / "beside", copied(folder, "beside")]
    for directory in (both[first], both[not first]):
        found = adopt_dead(directory)
        assert (len(found.finished), found.failed, found.damaged) == (1, [], [])
        assert spans(directory) == [3000]
        assert len(list(directory.iterdir())) == 1


def test_a_copy_from_when_the_process_ran_is_told_as_one(runs: Outcome) -> None:
    folder = runs.folder.parent
    assert spans(folder / "living") == [3000]
    (failed,) = adopt_dead(folder / "copy-of-living").failed
    assert "is gone; this is a copy" in failed
    assert list((folder / "copy-of-living").glob("*.spool-at")) == []
