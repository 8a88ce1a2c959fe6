"""What is left in the directory of temporary files by commands that are ended, or killed."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from analysis.trace_lines import small_trace
from conftest import SCRIPT_LIMIT_S, clean_environment
from safety.commands import COPYING_COMMAND, dftrace

ENDED_BY = {
    signal.SIGTERM: -signal.SIGTERM,
    signal.SIGHUP: -signal.SIGHUP,
    signal.SIGINT: 130,
}

# More than a pipe holds: who does not read it keeps the command where it is.
MANY_ROWS = "select range, repeat('x', 100) from range(1000000)"


@pytest.fixture
def spare(tmp_path: Path) -> Path:
    folder = tmp_path / "spare"
    folder.mkdir()
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    trace = small_trace(100).write(tmp_path / "a.pfw.gz")
    path = tmp_path / "run.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(trace, "a.pfw.gz")
    return path


@contextmanager
def started(spare: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose output is not read, but for its beginning."""
    process = subprocess.Popen(
        [*COPYING_COMMAND, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**clean_environment(), "TMPDIR": str(spare)},
    )
    try:
        assert process.stdout is not None
        process.stdout.read(1)
        yield process
    finally:
        process.kill()
        process.communicate()


def summed_up(archive: Path, spare: Path) -> int:
    """The status of a summary, which makes copies, too."""
    words = [*COPYING_COMMAND, "summary", str(archive)]
    environment = {**clean_environment(), "TMPDIR": str(spare)}
    return subprocess.run(words, capture_output=True, env=environment, check=False).returncode


def left(spare: Path) -> list[str]:
    return sorted(path.name for path in spare.iterdir())


def calls(archive: Path) -> dict[str, list[object]]:
    return {
        "view": ["view", archive, "--no-browser"],
        "sql": ["sql", archive, MANY_ROWS, "--csv"],
    }


@pytest.mark.parametrize("number", ENDED_BY, ids=lambda number: number.name)
@pytest.mark.parametrize("command", ["view", "sql"])
def test_a_command_that_is_ended_leaves_no_copies(
    archive: Path, spare: Path, command: str, number: signal.Signals
) -> None:
    with started(spare, *calls(archive)[command]) as process:
        assert left(spare)
        process.send_signal(number)
        if command == "sql" and number == signal.SIGINT:
            process.send_signal(number)
        status = process.wait(60)
    assert left(spare) == []
    wanted = {ENDED_BY[number], 0} if command == "view" else {ENDED_BY[number], -number}
    assert status in wanted


def test_being_sent_twice_does_not_keep_it_from_clearing_up(archive: Path, spare: Path) -> None:
    """`timeout` and shells that end send it to the process, and again to all of its group."""
    with started(spare, "view", archive, "--no-browser") as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert -process.wait(60) in {signal.SIGTERM, signal.SIGHUP}
    assert left(spare) == []


def test_a_command_that_was_started_to_ignore_it_goes_on(archive: Path, spare: Path) -> None:
    """As below `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with started(spare, "view", archive, "--no-browser") as process:
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_killed_command_leaves_goes_with_the_next(archive: Path, spare: Path) -> None:
    others = spare / "dftrace-spare-mine"
    others.mkdir()
    (others / "kept.pfw").touch()
    with started(spare, "view", archive, "--no-browser") as killed:
        killed.kill()
        killed.wait(60)
    assert len(left(spare)) == 2
    with started(spare, "view", archive, "--no-browser"):
        in_use = left(spare)
        assert len(in_use) == 2
        assert summed_up(archive, spare) == 0
        assert left(spare) == in_use
    assert summed_up(archive, spare) == 0
    assert left(spare) == [others.name]
    assert (others / "kept.pfw").exists()


def test_what_a_killed_conversion_leaves_goes_with_the_next_to_its_place(tmp_path: Path) -> None:
    path = small_trace(100).write(tmp_path / "a.pfw")
    out = tmp_path / "out"
    out.mkdir()
    names = ["all.pfw.gz", ".all.pfw.gz-mine", ".all.pfw.gz-0123abcd"]
    for name in names[1:]:
        (out / name).touch()
    words = ("convert", path, "--to", "perfetto", "--out", out / names[0])
    with (out / names[2]).open("rb") as in_use:
        fcntl.flock(in_use, fcntl.LOCK_EX)
        assert dftrace(*words).status == 0
        assert left(out) == sorted(names)
    assert dftrace(*words, "--force").status == 0
    assert left(out) == sorted(names[:2])


# It sends itself a signal while DuckDB writes a file that has no end.
INTERRUPTED = """
import os, signal, sys, threading
from dftrace_ai.cli import main
from dftrace_ai.database import Database

ENDLESS = "(SELECT range FROM range(1000000000000))"
number = int(sys.argv[1])
copy = Database.copy_out

def endless_copy(database, query, path):
    def send():
        while not (path.exists() and path.stat().st_size):
            pass
        os.kill(os.getpid(), number)
    threading.Thread(target=send).start()
    return copy(database, ENDLESS, path)

Database.copy_out = endless_copy
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["dftrace", *sys.argv[2:]]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_what_duckdb_does_ends_by_a_signal_without_a_word(
    tmp_path: Path, spare: Path, number: signal.Signals
) -> None:
    path = small_trace(100).write(tmp_path / "a.pfw")
    words = ("convert", path, "--to", "parquet", "--out", tmp_path / "out")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(int(number)), *map(str, words)],
        capture_output=True,
        env={**clean_environment(), "TMPDIR": str(spare)},
        timeout=SCRIPT_LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (ENDED_BY[number], b"", b"")
    assert left(spare) == []
    assert left(tmp_path) == ["a.pfw", "spare"]
