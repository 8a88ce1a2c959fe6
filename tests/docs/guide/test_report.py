"""The page on reports: its commands do what it shows, and its tables are those of the code."""

from __future__ import annotations

import inspect
import re
import shlex

import pytest
from safety.commands import invoke

from dftrace_ai.analysis import Run
from dftrace_ai.analysis.report.figures.facts import MOST_GROUPS
from dftrace_ai.analysis.report.figures.flame import MOST_FRAMES
from dftrace_ai.analysis.report.figures.series import (
    MOST_CHARTS,
    MOST_COLUMNS,
    MOST_HEAT_ROWS,
    MOST_LINES,
    MOST_MAPS,
)
from dftrace_ai.analysis.report.figures.steps import SLOWEST
from dftrace_ai.analysis.report.page import MOST_NAMES
from dftrace_ai.analysis.report.plots import MOST_LAYERS
from docs.conftest import RunExample
from docs.pages import DOCS, between, blocks, plain, section, table

STATS = "tensor_stats"
PAGE = DOCS / "guide" / "report.md"


def test_the_commands_write_what_the_page_tells(
    run_example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_example("training.py").folder
    monkeypatch.chdir(folder)
    shown = [block.text for block in blocks(PAGE, "text") if block.text.startswith("$ dftrace")]
    assert len(shown) == 2
    for text in shown:
        command, _, want = text.partition("\n")
        done = invoke(*shlex.split(command)[2:])
        assert (done.status, done.out, done.err) == (0, want, "")
    page = (folder / "report.html").read_text("utf-8")
    told = [row[0] for row in table(between(PAGE, "sections"))][2:]
    found = re.findall(r"<h2 id=s-[a-z]+>([^<]*)</h2>", page)
    assert found == [name for name in told if name not in {"Ranks", "Tensors"}]
    assert {path.stem for path in (folder / "plots").iterdir()} >= {"steps", "flame", "counter-0"}


def test_what_inspection_writes_is_shown(run_example: RunExample) -> None:
    example = run_example("inspect_training.py")
    run = Run(example.folder / "out")
    told = {event.name for one in example.traces for event in one.of("i") if event.cat == STATS}
    assert told
    assert {f"{one.layer}:{one.tensor}" for one in run.tensor_statistics} == told
    tensors = run.figures.tensors
    assert tensors.layers == len({name.rpartition(":")[0] for name in told})
    assert tensors.maps
    # The same numbers as counters have no place among these.
    assert not told & {one.counter for one in run.counters}


def test_the_table_of_run_has_what_it_has() -> None:
    told = [re.match(r"\w+", plain(row[0]))[0] for row in table(between(PAGE, "run"))]
    assert sorted(told) == sorted(name for name, _ in inspect.getmembers(Run) if name[0] != "_")


def test_the_limits_are_those_of_the_code() -> None:
    text = " ".join(section(PAGE, "Limits").split())
    for said in (
        f"{MOST_GROUPS} places of steps, {MOST_FRAMES:,} paths",
        f"{MOST_CHARTS} numbers of counters with {MOST_LINES} processes each",
        f"{MOST_MAPS} heat maps of {MOST_HEAT_ROWS} layers and {MOST_COLUMNS} columns",
        f"{MOST_LAYERS} single layers",
        f"the {MOST_NAMES} names",
        f"the slowest {SLOWEST} steps",
    ):
        assert said in text, said
