"""Runs read while they are written: none lost, no error, never backwards; and how programs end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPT_LIMIT_S, clean_environment
from sampling import times

from dftrace_ai.loggers.runs.log_files import NoRunsError
from dftrace_ai.loggers.runs.reading import read_runs
from dftrace_ai.loggers.runs.tables import RunTables

WRITERS = 32
METRICS = 20

OPENING = """
import os, sys, time
from dftrace_ai.loggers import make_loggers

def opened(name, **settings):
    config = {"log_dir": sys.argv[1], "run_name": name, "status_line": False, "limit_s": 100}
    return make_loggers({"local": {"config": {"system_metrics_s": None, **config, **settings}}})
"""

MANY = (
    OPENING
    + """
writers, rows = int(sys.argv[2]), int(sys.argv[3])
names = [f"m{n}" for n in range(20)]
children = []
for writer in range(writers):
    child = os.fork()
    if not child:
        loggers = opened("run")
        for row in range(rows):
            data = {name: writer + row / 1024 + n for n, name in enumerate(names)}
            loggers.log_iter(data, step=row)
        loggers.end_log()
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""
)

# What a program does when it has logged; each ends in its own way.
ENDS = {
    "returns": "def main():\n    loggers = logged(10)\nmain()",
    "ends": "logged(10).end_log()\nprint('ended', flush=True)\nsys.stdin.read()",
    "raises": "def main():\n    loggers = logged(10)\n    raise RuntimeError('no memory')\nmain()",
    "raises in a block": "with logged(10):\n    raise RuntimeError('no memory')",
    "is interrupted": "loggers = logged(10)\nloggers.flush()\nprint('ready', flush=True)\ntime.sleep(1000)",
    "is terminated": "loggers = logged(10)\nloggers.flush()\nprint('ready', flush=True)\ntime.sleep(1000)",
    "goes on": "loggers = logged(10)\nloggers.flush()\nprint('ready', flush=True)\nsys.stdin.read()\nos._exit(0)",
    "is killed": """
loggers = opened(sys.argv[2])
for step in range(100_000):
    loggers.log_iter({"loss": float(step)})
    print(step, flush=True)
    time.sleep(0.01)
""",
}
LOGGED = (
    OPENING
    + """
def logged(rows):
    loggers = opened(sys.argv[2])
    for step in range(rows):
        loggers.log_iter({"loss": float(step)})
    return loggers
"""
)


def started(program: str, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )


def seen(root: Path) -> dict[str, int]:
    """Counts of what is there, each of which may only grow."""
    try:
        runs = read_runs(root)
    except NoRunsError:
        return {}
    (run,) = runs
    assert runs.notes == []
    assert run.unreadable == 0
    assert run.status in {"running", "finished", "unknown"}
    counts = {name: figures.count for name, figures in run.metrics.items()}
    return counts | {"rows": run.rows, "processes": len(run.writers), "step": run.step}


@pytest.mark.sampled
def test_nothing_is_lost_of_many_writers_and_a_reader_never_goes_backwards(tmp_path: Path) -> None:
    rows = times(1000, 0.2)
    program = started(MANY, tmp_path, WRITERS, rows)
    looks = [seen(tmp_path)]
    running = True
    while running:
        try:
            program.wait(0.2)
            running = False
        except subprocess.TimeoutExpired:
            pass
        looks.append(seen(tmp_path))
        assert len(looks) < SCRIPT_LIMIT_S * 5
        for name, count in looks[-2].items():
            assert looks[-1][name] >= count
    _, said = program.communicate()
    assert program.returncode == 0, said
    (run,) = read_runs(tmp_path)
    assert (run.status, run.rows, run.step) == ("finished", WRITERS * rows, rows - 1)
    assert len(run.writers) == WRITERS
    with RunTables([run.folder]) as tables:
        wrong = tables.query(
            "select name, sum(value), count(*) from metrics group by name order by name"
        ).rows
    for name, total, count in wrong:
        own = int(name[1:])
        want = sum(w + r / 1024 + own for w in range(WRITERS) for r in range(rows))
        assert (total, count) == (pytest.approx(want, rel=1e-12), WRITERS * rows)
    assert len(wrong) == METRICS


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], int]:
    """Programs that have ended in every way, side by side; and the last step of the killed one."""
    root = tmp_path_factory.mktemp("runs")
    programs = {
        name: started(LOGGED + program, root, name.replace(" ", "-"))
        for name, program in ENDS.items()
    }
    try:
        return root, *in_their_ways(root, programs)
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()


def in_their_ways(
    root: Path, programs: dict[str, subprocess.Popen[str]]
) -> tuple[dict[str, str], int]:
    """Has programs end; their statuses then, and the last step of the killed one."""
    before = {}
    for name in ("ends", "is interrupted", "is terminated", "goes on"):
        line = programs[name].stdout.readline()
        assert line, programs[name].communicate()
        before[name] = statuses(root)[name.replace(" ", "-")]
    assert before == {
        "ends": "finished",
        "is interrupted": "running",
        "is terminated": "running",
        "goes on": "running",
    }
    killed = programs["is killed"]
    # Each step takes a hundredth of a second at least.
    steps = [int(killed.stdout.readline()) for _ in range(150)]
    os.kill(killed.pid, signal.SIGKILL)
    # Nobody has asked for its status yet: the process is still listed.
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    unreaped = statuses(root)["is-killed"]
    programs["is interrupted"].send_signal(signal.SIGINT)
    programs["is terminated"].send_signal(signal.SIGTERM)
    for program in programs.values():
        program.communicate(timeout=SCRIPT_LIMIT_S)
    assert programs["is terminated"].returncode == -signal.SIGTERM
    assert unreaped == "killed"
    return statuses(root), steps[-1]


def statuses(root: Path) -> dict[str, str]:
    return {run.name: run.status for run in read_runs(root)}


def test_each_end_of_a_program_has_its_status(ended) -> None:
    assert ended[1] == {
        "returns": "finished",
        "ends": "finished",
        "raises": "failed",
        "raises-in-a-block": "failed",
        "is-interrupted": "killed",
        "is-terminated": "killed",
        "goes-on": "killed",  # it ended without a word
        "is-killed": "killed",
    }


def test_no_end_of_a_program_loses_what_was_logged_a_second_before(ended) -> None:
    root, _, last = ended
    for run in read_runs(root):
        if run.name == "is-killed":
            # Of the last second there may be less.
            assert run.step >= last - 100
            assert run.rows == run.step + 1
        else:
            assert (run.name, run.rows, run.metrics["loss"].last) == (run.name, 10, 9.0)
