"""What a command loads before it does anything, and what it makes of the words of its call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from analysis.trace_lines import small_trace
from conftest import clean_environment
from typer.core import TyperCommand

from dftrace_ai.cli import app
from dftrace_ai.cli.commands import QuickCommand

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
