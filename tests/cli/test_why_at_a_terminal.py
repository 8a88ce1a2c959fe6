"""`dftrace why` at a terminal of any width: a hanging indent, and the severity in colour and bold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from analysis.why.made_runs import Training
from safety.commands import at_terminal, invoke

STYLE = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Training(item_ms=30).write(tmp_path_factory.mktemp("runs") / "starved", 1)


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
