"""Commands at a terminal of any width: names stay whole, `why` has a hanging indent and colours."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from analysis.why.made_runs import Training
from safety.commands import at_terminal, invoke

from dftrace_ai.cli import terminal

STYLE = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Training(item_ms=30).write(tmp_path_factory.mktemp("runs") / "starved", 1)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Training().write(tmp_path_factory.mktemp("runs") / "healthy", 1)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_rest_of_a_line_hangs_below_its_text(starved: Path, width: int) -> None:
    _, shown = at_terminal("why", starved, env={"TERM": "xterm-256color", "COLUMNS": str(width)})
    lines = STYLE.sub("", shown).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= width
    rows = lines[lines.index("") + 1 :]
    assert all(re.match(r"  \w.{8}  ?\S| {12}\S", row) for row in rows), rows
    # Whatever the width, it is the same text.
    piped = invoke("why", starved).out
    assert "".join(shown_words(lines)) == "".join(shown_words(piped.splitlines()))
    narrow = at_terminal("why", starved, env={"TERM": "xterm-256color", "COLUMNS": "24"})[1]
    assert "\n  do next\n    " in STYLE.sub("", narrow).replace("\r", "")


def shown_words(lines: list[str]) -> list[str]:
    return [word for line in lines for word in line.split()]


def test_the_severity_has_a_colour_at_a_terminal_alone(starved: Path) -> None:
    colours = {"TERM": "xterm-256color"}
    head = at_terminal("why", starved, env=colours)[1].splitlines()[0]
    assert head.startswith("\x1b[1;31mINPUT-BOUND")
    mild = at_terminal("why", starved, "--threshold", "input=0.1,0.99", env=colours)[1]
    assert mild.startswith("\x1b[1;33mINPUT-BOUND")
    plain = at_terminal("why", starved, env={**colours, "NO_COLOR": "1"})[1]
    assert plain.startswith("\x1b[1mINPUT-BOUND")
    assert set(STYLE.findall(plain)) == {"\x1b[1m", "\x1b[0m"}
    assert "\x1b" not in invoke("why", starved).out


# What is to be read whole, where a table has no room as well.
WHOLE = {
    "summary": ["dataloader", "forward", "count"],
    "summary --by thread": ["dataloader", "forward", "total"],
    "summary --by tree": ["compute.forward", "no room for"],
    "info": ["finalize", "process", "2025-"],
    "sql 'select * from steps limit 2'": ["found_by", "forward_ns"],
    "sql 'select * from events limit 2'": ["parent_id", "process_name"],
    "sql 'select name from spans limit 2'": ["preprocess"],
    "diff": ["SLOWER", "slower", "dataloader.fetch"],
    "validate": ["no faults in"],
}


@pytest.mark.parametrize("width", [40, 80, 120])
def test_names_are_whole_at_any_width(
    starved: Path, healthy: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "PIPE_WIDTH", width)
    for words, wanted in WHOLE.items():
        command, *others = shlex.split(words)
        folders = [healthy, starved] if command == "diff" else [starved]
        done = invoke(command, *folders, *others)
        assert done.status == 0, (words, done.err)
        lines = done.out.splitlines()
        text = " ".join(shown_words(lines))
        told = [word for word in wanted if width < 120 or not word.startswith("no room")]
        assert [word for word in told if word not in text] == [], (words, done.out)
        if command != "validate":
            assert max(map(len, lines)) <= width, words
