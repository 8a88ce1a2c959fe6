"""What a command loads before it does anything, what it makes of its words, and Ctrl+C while it starts or works."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from analysis.trace_lines import small_trace
from conftest import clean_environment
from safety.commands import dftrace
from typer.core import TyperCommand

from dftrace_ai.cli import app
from dftrace_ai.cli.commands import QuickCommand
from dftrace_ai.loggers import make_loggers

# Each call in a child of its own of a process that has loaded nothing yet.
PROGRAM = """
import json, os, sys

HEAVY = {"torch", "duckdb", "pydantic", "numpy", "rich", "yaml", "psutil", "zstandard", "sqlite3"}
for words in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        sys.argv = ["dftrace", *words]
        from dftrace_ai.cli import main

        try:
            main()
        except SystemExit as end:
            status = end.code
        else:
            status = 0
        loaded = sorted(HEAVY & set(sys.modules))
        commands = [name for name in ("convert", "demo", "diff", "view", "runs")
                    if f"dftrace_ai.cli.{name}" in sys.modules]
        os.write(writing, json.dumps([status, loaded, commands]).encode())
        os._exit(0)
    os.close(writing)
    print(os.read(reading, 10000).decode())
    os.close(reading)
    os.waitpid(child, 0)
"""


def test_commands_load_what_they_need(tmp_path: Path) -> None:
    trace = str(small_trace().write(tmp_path / "t.pfw.gz"))
    # A table is drawn by rich, steps are counted by NumPy, odd lines are looked at by pydantic.
    expected = [
        (["--version"], []),
        (["--help"], ["rich"]),
        (["summary", trace], ["rich"]),
        (["summary", "--json", "--top", "3", "--by", "category", trace], []),
        (["validate", trace], ["pydantic"]),
        (["why", "--json", trace], ["numpy"]),
        (["stuck", str(tmp_path), "--idle", "3.5"], []),
        (["top", "--once", "--json", str(tmp_path)], []),
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([words for words, _ in expected])],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    # Nothing runs in that directory, which `stuck` and `top` call wrong.
    wrong = {"stuck": 2, "top": 2}
    # All commands are loaded for the help alone.
    commands = {"--help": ["convert", "demo", "diff", "view", "runs"]}
    assert said == [
        [wrong.get(words[0], 0), heavy, commands.get(words[0], [])] for words, heavy in expected
    ]


CALLS = [
    "summary a.pfw b.pfw --by rank --sort self --top 5 --where x --no-recover",
    "summary a.pfw --top 0",
    "summary a.pfw --top -3",
    "summary a.pfw --top 1.0",
    "summary a.pfw --top 1_0",
    "summary a.pfw --top +4",
    "summary a.pfw --top \u0663",
    "summary a.pfw --by Rank",
    "summary a.pfw --by nothing --json",
    "summary a.pfw --where=",
    "summary",
    "summary --nothing a.pfw",
    "stuck . --idle 1.5",
    "stuck . --idle 1e3",
    "stuck . --idle nan",
    "stuck . --idle -1",
    "stuck . --idle .5",
    "stuck . --idle .",
    "top . --window 0.05",
    "top . --window 4000",
    "why a.pfw --threshold input=1 --threshold comm=2,3 --fail-on critical",
    "why a.pfw --fail-on all",
    "validate closed.pfw gone.pfw",
    "report a.pfw -o out.html",
    "inspect features a b",
    "view --port 70000 a.pfw",
]


def made_of(words: str) -> object:
    """What a command is given for the words of a call, or what is said against them."""
    command = typer.main.get_command(app)
    rest = words.split(" ")
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    try:
        context = command.make_context(words, rest)
    except Exception as error:
        return type(error).__name__, error.format_message()
    return [(key, type(value), value) for key, value in context.params.items()]


def test_plain_words_are_taken_as_typer_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.pfw", "b.pfw", "closed.pfw"):
        Path(name).touch()
    Path("closed.pfw").chmod(0)
    quickly = [made_of(words) for words in CALLS]
    monkeypatch.setattr(QuickCommand, "get_params", TyperCommand.get_params)
    app_of_typer = [made_of(words) for words in CALLS]
    assert quickly == app_of_typer
    assert {type(said) for said in quickly} == {list, tuple}


# Each in a child of a process that has loaded nothing yet: the signal comes when it looks for its
# n-th module, or is over.
INTERRUPTING = """
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
            [sys.executable, "-c", INTERRUPTING, path, numbers, *words],
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
