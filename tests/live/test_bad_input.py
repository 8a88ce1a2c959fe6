"""What is no running job: one clear line, and the status that the help names."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from dftrace_ai import _native
from dftrace_ai.live import snapshot
from dftrace_ai.spools import search
from dftrace_ai.spools.search import FoundSpool
from live.programs import LIMIT_S, dftrace, program

# Where the version stands in a spool: behind the magic.
VERSION = struct.Struct("=I")
VERSION_AT = 8

KILLED = """
    dftrace_ai.initialize(rank=0)
    ai.pipeline.train.start()
    ai.compute.forward.start()
    done()
"""


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The spool of a process that was killed in compute.forward; not to be changed."""
    folder = tmp_path_factory.mktemp("killed")
    with program(KILLED, folder, DFTRACE_SPOOL_DIR=str(folder)) as running:
        running.kill()
    (path,) = folder.glob("*.spool")
    return path


@pytest.fixture
def left(spool: Path, tmp_path: Path) -> Path:
    """A directory with a copy of that spool, and its marker."""
    shutil.copy(spool, tmp_path / spool.name)
    marker = tmp_path / f"t-{_native.host_name()}-1.spool-at"
    marker.write_text(f"{tmp_path / spool.name}\n")
    return tmp_path


def refused(path: Path, reason: str) -> None:
    """Both commands say it in one line, and end as their help says."""
    for words, status in ((["top", "--once"], 2), (["top", "--json"], 2), (["stuck"], 2)):
        told = dftrace(*words, path)
        assert told.status == status, told.err
        assert told.out == ""
        (line,) = told.err.splitlines()
        assert line.startswith("dftrace: ")
        assert reason in line


def test_what_is_no_directory_with_a_run(tmp_path: Path) -> None:
    refused(tmp_path / "missing", "missing: cannot be read: No such file or directory")
    refused(tmp_path, "nothing was recorded here")
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    refused(path, "neither a directory nor a spool nor a snapshot")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    os.mkfifo(tmp_path / f"t-{_native.host_name()}-1.spool-at")
    refused(tmp_path, "is no regular file")


def test_a_directory_with_finished_traces(tmp_path: Path) -> None:
    source = """
        with dftrace_ai.tracing():
            with ai.compute.forward:
                pass
        done()
    """
    with program(source, tmp_path):
        refused(tmp_path, "nothing runs here: 1 trace")


def test_markers_that_lead_nowhere(left: Path) -> None:
    (marker, spool) = (*left.glob("*.spool-at"), *left.glob("*.spool"))
    spool.unlink()
    refused(left, "is gone")
    spool.mkdir()
    refused(left, f"names {spool}, which is no regular file")
    spool.rmdir()
    marker.write_text("dftrace-\0.spool\n")  # `tests/safety` has others
    refused(left, "names no spool")
    # One that was only begun is no fault.
    for text in ("", "/dev/shm/dftrace-"):
        marker.write_text(text)
        refused(left, "nothing was recorded here")
    marker.unlink()
    marker.symlink_to(marker.name)
    refused(left, "is a link")


def test_a_spool_of_a_newer_version(left: Path) -> None:
    (path,) = left.glob("*.spool")
    reads = _native.build_info()["spool_version"]
    with path.open("r+b") as file:
        file.seek(VERSION_AT)
        file.write(VERSION.pack(reads + 1))
    refused(
        left, f"spool version {reads + 1} is not known to this dftrace (it reads version {reads})"
    )


def test_markers_of_another_host(left: Path) -> None:
    for number in range(3):
        (left / f"t-node7-{number}.spool-at").write_text(f"/dev/shm/dftrace-0-{number}-1-0.spool\n")
    for path in left.glob(f"t-{_native.host_name()}-*"):
        path.unlink()
    refused(left, "nothing is visible from here: 3 processes: run on host t-node7")


def test_a_spool_of_another_host_without_its_marker(left: Path) -> None:
    """Its host stands in it: a name of a file is none."""
    (spool,) = left.glob("*.spool")
    here = _native.host_name().encode()
    there = here[::-1] if here != here[::-1] else b"q" * len(here)
    spool.write_bytes(spool.read_bytes().replace(here, there))
    refused(spool, f"nothing is visible from here: 1 process: run on host {there.decode()}")


def test_what_can_be_seen_is_shown_beside_what_cannot(left: Path) -> None:
    (left / "t-node7-1.spool-at").write_text("/dev/shm/dftrace-0-1-1-0.spool\n")
    (left / f"t-{_native.host_name()}-9.spool-at").write_text("/etc/passwd\n")
    told = dftrace("top", "--once", left)
    assert told.status == 0, told.err
    assert "compute.forward" in told.out
    assert "not visible from here: 1 process: run on host node7" in told.out
    assert "names no spool" in told.out
    told = dftrace("stuck", left)
    assert told.status == 0, told.err
    assert "nothing lives: 1 process died" in told.out
    assert "run on host node7" in told.out


def test_a_spool_that_was_cut_shows_what_is_left(left: Path) -> None:
    (path,) = left.glob("*.spool")
    os.truncate(path, 2 * 64 * 1024)
    for words in (["top", "--once"], ["stuck"]):
        assert dftrace(*words, left).status == 0
    os.truncate(path, 1000)
    refused(left, "not a spool")


def test_a_dead_run_is_shown_and_left_as_it_is(left: Path) -> None:
    before = {path.name: path.read_bytes() for path in left.iterdir()}
    for words in (["top", "--once"], ["top", "--json"], ["stuck"]):
        assert dftrace(*words, left).status == 0
    assert {path.name: path.read_bytes() for path in left.iterdir()} == before


def test_a_spool_may_be_named_itself(spool: Path) -> None:
    told = dftrace("top", "--once", spool)
    assert told.status == 0, told.err
    assert "train > compute.forward" in told.out


@pytest.mark.parametrize(
    "words",
    [[], ["--no-such", "x"], ["--idle", "x", "y"], ["--idle", "-1", "x"]],
    ids=" ".join,
)
def test_wrong_calls_of_stuck_do_not_look_like_something_stuck(words: list[str]) -> None:
    assert dftrace("stuck", *words).status == 2


def test_the_statuses_of_stuck_are_in_its_help() -> None:
    told = " ".join(dftrace("stuck", "--help").out.split())
    assert "0 nothing is stuck, 1 something is, or a rank has died while others live, 2" in told


def test_the_status_of_stuck_survives_a_reader_that_has_seen_enough(left: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for words, status in ((["stuck"], 0), (["stuck", "--json"], 0), (["top", "--once"], 0)):
        told = subprocess.run(
            [sys.executable, "-m", "dftrace_ai.cli", *words, str(left)],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
        )
        assert (told.returncode, told.stderr) == (status, "")
    os.close(writing)


def test_a_directory_that_is_removed_meanwhile(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old checkpoint beside the traces goes while they are looked for: the rest is seen."""
    checkpoint = left / "checkpoint-1"
    checkpoint.mkdir()
    read = search.spool_of_marker

    def and_it_goes(marker: Path) -> FoundSpool | None:
        checkpoint.rmdir()
        return read(marker)

    monkeypatch.setattr(search, "spool_of_marker", and_it_goes)
    assert len(snapshot([left]).processes) == 1
    assert not checkpoint.exists()


def test_traces_of_a_job_that_died_tell_where_it_stood(left: Path) -> None:
    recovered = dftrace("recover", left)
    assert recovered.status == 0, recovered.err
    told = dftrace("stuck", left)
    assert (told.status, told.out) == (2, "")
    first, second = told.err.splitlines()
    assert "nothing runs here: 1 trace" in first
    assert second.startswith("rank 0 died in compute.forward, last sign of life ")
    assert second.endswith(" ago (train > forward)")


@pytest.mark.parametrize("command", ["stuck", "top --once", "recover", "ui --no-browser"])
def test_an_address_of_a_store_is_no_directory_here(command: str) -> None:
    done = dftrace(*command.split(), "s3://bucket/run")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "dftrace: s3://bucket/run: only directories of this machine can be looked at here\n"
    )


def test_a_directory_by_its_address(left: Path) -> None:
    told = dftrace("top", "--once", left.as_uri())
    assert (told.status, "compute.forward" in told.out) == (0, True), told.err
