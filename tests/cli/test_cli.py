"""The command line: what it prints, and the status it ends with."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from analysis.trace_lines import small_trace
from printed_json import checked
from rich.table import Table
from safety.commands import answer, invoke

import dftrace_ai
from dftrace_ai.cli import app
from dftrace_ai.cli import info as info_command
from dftrace_ai.cli.terminal import console, figures_table, with_rows


def run(*words: object) -> tuple[int, str, str]:
    done = invoke(*words)
    return done.status, done.out, done.err


def test_the_version() -> None:
    assert run("--version") == (0, f"dftrace {dftrace_ai.__version__}\n", "")


NOTEBOOK = """
import builtins, sys
# What rich asks for to find out where it is.
class ZMQInteractiveShell: ...
builtins.get_ipython = ZMQInteractiveShell
from dftrace_ai.cli import main
sys.argv[0] = "dftrace"
main()
"""


@pytest.mark.parametrize("start", [["-m", "dftrace_ai.cli"], ["-c", NOTEBOOK]])
def test_what_goes_to_a_pipe_or_into_a_notebook_is_plain(tmp_path: Path, start: list[str]) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.footer(dropped=12)
    path = trace.write(tmp_path / "t.pfw.gz")
    # As the kernels of Jupyter set it for all that they run.
    env = {**os.environ, "FORCE_COLOR": "1", "CLICOLOR": "1", "TERM": "xterm-color"}
    told = ""
    for words in (["summary", path], ["summary", "--wrong"], ["info"], ["top", tmp_path]):
        done = subprocess.run(
            [sys.executable, *start, *map(str, words)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        told += done.stdout + done.stderr
    assert "fetch.iter" in told
    assert "LOST 12 events" in told
    assert "--wrong" in told or start[0] == "-c"  # typer's words need a real notebook
    assert "nothing runs here" in told
    assert "\x1b" not in told


def test_summary_prints_the_bodies_of_loops_apart(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.span("fetch.block", "dataloader", 1_123_213_646_770_000, 9000, count=1)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    loops = {row["name"]: row["loop"] for row in answer("summary", path)["spans"]}
    assert (loops["fetch.block"], loops["fetch.iter"], loops["train"]) == ("body", "wait", None)
    out = invoke("summary", path).out
    spans, bodies = out.split("Bodies of loops, with all that is done in them")
    assert "fetch.iter" in spans
    assert "fetch.block" not in spans
    assert [*map(str.split, bodies.splitlines())][4] == [
        *("dataloader", "fetch.block", "1", "9", "us", "9", "us", "60.5%"),
        *["9", "us"] * 5,
    ]
    assert "metadata" in bodies


def test_validate_prints_the_first_ten_faults(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.extend(["nonsense"] * 15)
    path = trace.write(tmp_path / "t.pfw")
    status, out, err = run("validate", path)
    assert status == 1
    assert len(out.splitlines()) == 10
    assert out.splitlines()[0].startswith(f"{path}:17: ")
    assert "30 faults, 20 more than shown" in err
    assert len(run("validate", path, "--top", 3)[1].splitlines()) == 3


def test_validate_a_trace_that_is_being_written(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    path = trace.write(tmp_path / "t.pfw")
    assert run("validate", path)[0] == 1
    assert run("validate", path, "--unfinished-ok")[0] == 0


@pytest.mark.parametrize(
    "arguments", [["summary"], ["validate", "--no-such"], ["nonsense"], ["demo", "--epochs", "0"]]
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


def test_info_shows_settings_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFTRACE_RANK", "7")
    monkeypatch.setattr(info_command, "_native", lambda: {"clock": "tsc"})
    status, out, _ = run("info", "--json")
    assert status == 0
    facts = checked(out, "installation")
    assert facts["settings"]["rank"] == 7
    assert facts["environment"] == {"DFTRACE_RANK": "7"}
    assert facts["native core"] == {"clock": "tsc"}
    assert "python" in facts["versions"]
    status, out, _ = run("info")
    assert status == 0
    assert "DFTRACE_RANK" in out


def test_info_goes_on_where_settings_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFTRACE_COMPRESSION", "lz4")
    monkeypatch.setattr(info_command, "_native", lambda: {"clock": "tsc"})
    status, out, _ = run("info")
    assert status == 1
    assert "'gzip', 'zstd' or 'none'" in out


def test_info_says_that_the_native_core_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dftrace_ai._native", None)
    monkeypatch.delattr("dftrace_ai._native", raising=False)
    status, out, _ = run("info")
    assert status == 1
    assert "not built" in out


@pytest.mark.parametrize("width", range(10, 60))
def test_rows_that_are_printed_as_one_look_as_rows_that_are_not(width: int) -> None:
    rows = [("a long name of 漢", "1", "[b]"), ("", "", ""), ("[/] :boom:", "12,345", "0.1 us")]

    def printed(fill: Callable[[Table], Table]) -> str:
        out = console()
        out.width = width
        with out.capture() as captured:
            out.print(fill(figures_table("Title", ["Name"], ["Count", "Time"])))
        return captured.get()

    def one_by_one(table: Table) -> Table:
        for row in rows:
            table.add_row(*row)
        return table

    assert printed(lambda table: with_rows(table, rows, width)) == printed(one_by_one)


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


EVERY = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_has_json_and_an_example_that_it_takes(words: tuple[str, ...]) -> None:
    command = EVERY[words]
    prints = words != ("run",)  # it becomes another program
    assert prints == ("--json" in {option for one in command.params for option in one.opts})
    examples = [
        paragraph.removeprefix("Example: ")
        for paragraph in " ".join(
            line.strip() or "\n" for line in (command.help or "").splitlines()
        ).split(" \n ")
        if paragraph.startswith("Example: ")
    ]
    assert len(examples) == 1, command.help
    said, *rest = shlex.split(examples[0].replace("\n", " ").strip())
    assert (said, *rest[: len(words)]) == ("dftrace", *words)
    command.make_context(" ".join(words), rest[len(words) :])
    done = invoke(*words, "--help")
    assert done.status == 0
    assert f"Example: dftrace {' '.join(words)}" in " ".join(done.out.split())
