"""The page on runs: its commands print what it shows, and its tables are those of the code."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from loggers.local_lines import Kept, entry
from safety.commands import invoke

from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.runs.conditions import FACTS
from dftrace_ai.loggers.runs.log_files import LINE_BYTES
from dftrace_ai.loggers.runs.page import MOST_DOTS, MOST_PLOTS, MOST_RUNS
from dftrace_ai.loggers.runs.reading import MOST_NAMES, QUIET_S, STATUSES
from dftrace_ai.loggers.runs.tables import TABLES
from docs.conftest import RunExample
from docs.pages import DOCS, EXAMPLES, between, blocks, plain, quoted_examples, section, table

PAGE = DOCS / "guide" / "runs.md"
SHOWN = [block for block in blocks(PAGE, "text") if block.text.startswith("$ dftrace runs")]
VARYING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d:\d\d:\d\d")


def test_the_example_is_the_one_that_is_run() -> None:
    for name, text in quoted_examples(PAGE).items():
        assert text == (EXAMPLES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_a_command_prints_what_the_page_shows(
    block, run_example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_example("two_runs.py").folder)
    command, _, want = block.text.partition("\n")
    done = invoke(*shlex.split(command)[2:])
    assert (done.status, done.err) == (0, "")
    assert lines_of(done.out) == lines_of(want)


def lines_of(text: str) -> list[str]:
    return [VARYING.sub("", line.rstrip()) for line in text.splitlines() if line.strip()]


def test_the_tables_are_those_that_are_asked() -> None:
    for name, columns in TABLES.items():
        rows = table(section(PAGE, f"Table {name}"))
        assert {plain(row[0]): plain(row[1]) for row in rows} == columns


def test_statuses_facts_and_limits_are_as_told() -> None:
    assert [plain(row[0]) for row in table(section(PAGE, "Status"))] == list(STATUSES)
    text = PAGE.read_text(encoding="utf-8")
    chosen = plain(section(PAGE, "Choosing and sorting"))
    assert all(fact in chosen for fact in FACTS)
    assert f"changed for {QUIET_S:.0f} seconds" in text
    assert f"more than {LINE_BYTES >> 20} MiB" in text
    assert f"{MOST_NAMES:,} names" in text
    assert f"(beyond {MOST_DOTS})" in text
    assert f"{MOST_RUNS} runs and {MOST_PLOTS} plots" in text


def test_the_lines_are_those_that_are_written(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    kept = tmp_path / "kept.txt"
    kept.write_text("x")
    settings = entry(tmp_path, "metric", "hparams", "hist", "image")
    with make_loggers({"local": settings}) as loggers:
        loggers.log_iter({"loss": 1.0})
        loggers.log_hyperparams({"lr": 0.1})
        loggers.log_histogram("w", np.arange(10.0))
        loggers.log_image("im", np.zeros((4, 4, 3), np.uint8))
        loggers.log_text("note", "x")
        loggers.log_artifact(kept)
        loggers.alert("title")
    lines = Kept(tmp_path).lines
    told = {plain(row[0]): row for row in table(between(PAGE, "lines"))}
    assert {line["k"] for line in lines} == set(told)
    for line in lines:
        members = re.findall(r"`(\w+)`", told[line["k"]][1])
        own = [name for name in json.loads(json.dumps(line)) if name != "k"]
        if line["k"] == "f":
            own = [name for name in own if name not in ("width", "height", "caption")]
        assert own == members, line["k"]
