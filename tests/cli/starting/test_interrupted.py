"""Ctrl+C while a command starts, or asks what takes hours: it ends, and has nothing to say."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from analysis.trace_lines import small_trace
from conftest import clean_environment
from safety.commands import dftrace

from dftrace_ai.loggers import make_loggers

# Each in a child of a process that has loaded nothing yet: the signal comes when it looks for its
# n-th module, or is over.
PROGRAM = """
import os, signal, sys, traceback


class InterruptedAt:
    def __init__(self, number):
        self.left = number

    def find_spec(self, *_):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


from dftrace_ai.cli import main

for number in map(int, sys.argv[2].split()):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(writing, 2)
        sys.argv = ["dftrace", *sys.argv[3:], sys.argv[1]]
        at = InterruptedAt(number)
        sys.meta_path.insert(0, at)
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
            status = 99
        else:
            status = 0
        # An ended program is still to put away what it has.
        if at.left > 0:
            signal.raise_signal(signal.SIGINT)
        os._exit(status)
    os.close(writing)
    said = os.read(reading, 10_000)
    os.close(reading)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said, flush=True)
"""


def test_an_interrupted_command_ends_quietly(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t.pfw.gz")
    said = []
    for words, numbers in (
        (["summary"], "1 30 120 210 5000"),
        (["why", "--json"], "180 260"),
        (["validate"], "230"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, path, numbers, *words],
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        said += done.stdout.splitlines()
    # By the signal while it loads and when it is over, by a status from when it has begun.
    assert set(said) == {"-2 b''", "130 b''"}
    assert said[0] == said[4] == "-2 b''"


HOURS = "select sum(a.range * b.range) from range(100000000) a, range(100000000) b"
# Worked out while the query is planned, in one step that looks for nothing.
CONSTANT = "select length(replace(repeat('a', 400000000), 'a', 'b'))"


@pytest.mark.parametrize(
    ("query", "number", "status"),
    [(HOURS, signal.SIGINT, 130), (CONSTANT, signal.SIGINT, -2), (CONSTANT, signal.SIGTERM, -15)],
)
def test_a_query_that_takes_long_ends(
    query: str, number: signal.Signals, status: int, tmp_path: Path
) -> None:
    path = small_trace().write(tmp_path / "t.pfw.gz")
    asking = subprocess.Popen(
        [sys.executable, "-m", "dftrace_ai.cli", "sql", path, query],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    with asking:
        try:
            while _computed_beside_main_s(asking.pid) < 0.2:
                assert asking.poll() is None
                time.sleep(0.01)
            asking.send_signal(number)
            said = asking.communicate(timeout=120)
        finally:
            asking.kill()
    assert (asking.returncode, *said) == (status, b"", b"")


def test_a_constant_beyond_the_limit_of_memory_is_refused(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t.pfw.gz")
    with make_loggers({"local": {"config": {"log_dir": str(tmp_path / "logged")}}}) as loggers:
        loggers.log_hyperparams({"lr": 1})
    query = "select length(repeat('a', 3000000000))"
    for words in (["sql", path, query], ["runs", tmp_path / "logged", "--sql", query]):
        done = dftrace(*words)
        assert (done.status, done.out) == (2, ""), words
        assert "Out of Memory Error" in done.err


def _computed_beside_main_s(pid: int) -> float:
    """Return the CPU time of a process in its other threads: those that a query has."""
    ticks = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # One that was there a moment ago may be over.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if thread.name != str(pid):
                ticks += int((thread / "stat").read_text().rpartition(")")[2].split()[11])
    return ticks / os.sysconf("SC_CLK_TCK")
