"""How runs stand of which no process says so: looked up, judged by age, or unknown."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loggers.runs.made_logs import BEGUN_S, Log, only_run

from dftrace_ai.loggers.runs import processes
from dftrace_ai.loggers.runs.processes import ProcessIdentity, here, is_alive
from dftrace_ai.loggers.runs.reading import QUIET_S


@pytest.fixture(scope="module")
def gone() -> ProcessIdentity:
    """A process that has ended."""
    program = "from dftrace_ai.loggers.runs.processes import here; print(repr(tuple(here())))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return ProcessIdentity(*eval(said.stdout))


def facts(process: ProcessIdentity) -> dict[str, object]:
    return {
        "host": process.host,
        "boot": process.boot,
        "pid_ns": process.pid_namespace,
        "pid": process.pid,
        "start": process.start,
    }


def aged(log: Log, seconds: float) -> Log:
    """Have a log changed last so long ago."""
    then = time.time() - seconds
    os.utime(log.path, (then, then))
    return log


def test_a_process_is_known_by_more_than_its_number(gone) -> None:
    me, now = here(), time.time()
    assert is_alive(me, now) is True
    assert is_alive(gone, now) is False
    # The number is another's by now.
    assert is_alive(me._replace(start=me.start + 1), now) is False
    for elsewhere in (
        me._replace(host="another"),
        me._replace(pid_namespace=1),
        # Another machine of this name: it has written since this one was started.
        me._replace(boot="another"),
        me._replace(boot=""),
        me._replace(pid=0),
        me._replace(pid=-1),
        me._replace(pid=1 << 60),
    ):
        assert is_alive(elsewhere, now) is None
    # This machine before it was started anew.
    assert is_alive(me._replace(boot="another"), 1.0) is False


def test_a_process_that_nobody_has_waited_for_is_gone() -> None:
    program = "from dftrace_ai.loggers.runs.processes import here; print(repr(tuple(here())))"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        ended = ProcessIdentity(*eval(process.stdout.read()))
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_alive(ended, time.time()) is False


def test_a_process_that_may_not_be_looked_at_is_not_called_dead(monkeypatch) -> None:
    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(processes, "_stat", lambda pid: [])
    monkeypatch.setattr(os, "kill", refused)
    assert is_alive(here(), time.time()) is None


def test_without_an_end_the_process_is_looked_up(tmp_path: Path, gone) -> None:
    Log(tmp_path).metrics(0, loss=1.0)
    assert only_run(tmp_path).status == "running"
    Log(tmp_path, "p/dead", **facts(gone)).metrics(0, loss=1.0)
    assert only_run(tmp_path / "p" / "dead").status == "killed"


def test_on_another_host_the_age_of_the_last_line_says_it_or_nobody_knows(tmp_path: Path) -> None:
    log = Log(tmp_path, host="elsewhere").metrics(0, loss=1.0)
    assert only_run(tmp_path).status == "running"
    aged(log, QUIET_S + 60)
    assert only_run(tmp_path).status == "unknown"
    log.end("failed")
    aged(log, QUIET_S + 60)
    assert only_run(tmp_path).status == "failed"


def test_an_end_counts_whatever_became_of_the_process(tmp_path: Path, gone) -> None:
    for status in ("finished", "failed", "killed"):
        Log(tmp_path, f"p/{status}", **facts(gone)).end(status)
        assert only_run(tmp_path / "p" / status).status == status
    Log(tmp_path, "p/odd").end("exploded")
    assert only_run(tmp_path / "p" / "odd").status == "unknown"


RUNS = {
    # What each process is: rank, number of ranks, begin, and its end or whether it lives.
    "resumed after a kill": ([(0, 1, 0, "dead"), (0, 1, 9, "finished")], "finished"),
    "killed after it was resumed": ([(0, 1, 0, "finished"), (0, 1, 9, "dead")], "killed"),
    "resumed and running": ([(0, 1, 0, "failed"), (0, 1, 9, "alive")], "running"),
    "one rank of two fails": ([(0, 2, 0, "killed"), (1, 2, 1, "failed")], "failed"),
    "one rank of two is dead": ([(0, 2, 0, "finished"), (1, 2, 1, "dead")], "killed"),
    "one rank runs": ([(0, 2, 0, "finished"), (1, 2, 1, "alive")], "running"),
    "with fewer ranks": ([(0, 2, 0, "dead"), (1, 2, 0, "dead"), (0, 1, 9, "finished")], "finished"),
    "one rank of two again": (
        [(0, 2, 0, "dead"), (1, 2, 1, "dead"), (0, 2, 8, "finished"), (1, 2, 9, "finished")],
        "finished",
    ),
    "an older one lives": ([(0, 1, 0, "alive"), (0, 1, 9, "finished")], "running"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_several_processes_is_one(tmp_path: Path, gone, name: str) -> None:
    made, status = RUNS[name]
    for number, (rank, ranks, begun, end) in enumerate(made):
        who = facts(gone) if end == "dead" else {}
        log = Log(tmp_path, rank=rank, number=number, world_size=ranks, t=BEGUN_S + begun, **who)
        log.metrics(number, loss=float(number))
        if end not in ("dead", "alive"):
            log.end(end)
    run = only_run(tmp_path)
    assert run.status == status
    assert run.metrics["loss"].count == len(made)


def test_a_process_that_ends_between_two_reads_is_never_called_killed(
    tmp_path: Path, gone, monkeypatch
) -> None:
    """It is looked at first: what it writes until it is gone is read."""
    from dftrace_ai.loggers.runs import reading

    log = Log(tmp_path, **facts(gone)).metrics(0, loss=1.0)

    def ends_now(process: ProcessIdentity, written_s: float) -> bool | None:
        log.metrics(1, loss=2.0).end()
        return is_alive(process, written_s)

    monkeypatch.setattr(reading, "is_alive", ends_now)
    run = only_run(tmp_path)
    assert (run.status, run.rows) == ("finished", 2)
