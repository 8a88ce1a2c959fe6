"""The pages on reading traces, on reports and on summaries: their tables and commands against the code."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import get_args

import duckdb
import pytest
from analysis.trace_lines import small_trace
from safety.commands import invoke

from dftrace_ai.analysis import Run
from dftrace_ai.analysis.converting import FORMS
from dftrace_ai.analysis.reading import EndState, TraceSet, open_traces
from dftrace_ai.analysis.reading.trace_set import COLUMNS
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
from dftrace_ai.analysis.report.series_plots import MOST_LAYERS
from dftrace_ai.analysis.views import VIEWS
from dftrace_ai.analysis.where import FIELDS, where_of
from dftrace_ai.cli.summary import By
from dftrace_ai.conditions import OPERATORS
from docs.conftest import RunExample
from docs.pages import DOCS, between, blocks, plain, section, table

PAGE = DOCS / "guide" / "read-traces.md"


def test_the_columns_are_those_of_batches_and_of_a_relation(tmp_path: Path) -> None:
    rows = table(between(PAGE, "columns"))
    traces = open_traces([small_trace().write(tmp_path / "t.pfw.gz")])
    (batch,) = traces.batches()
    assert [plain(row[0]) for row in rows] == list(COLUMNS) == list(batch)
    assert [plain(row[1]) for row in rows] == [str(values.dtype) for values in batch.values()]
    with traces.relation() as events:
        assert [plain(row[2]) for row in rows] == [str(kind) for kind in events.types]
    words = [line.split() for line in (TraceSet.batches.__doc__ or "").splitlines()]
    head = words.index(["name", "type", "what"])
    listed = [line[:2] for line in words[head + 2 : head + 2 + len(COLUMNS)]]
    assert listed == [[plain(row[0]), plain(row[1])] for row in rows]


def test_the_states_are_those_of_an_end() -> None:
    text = section(PAGE, "Read traces from Python")
    assert [plain(row[0]) for row in table(text)] == list(get_args(EndState))


def test_the_page_shows_one_program_for_each_way() -> None:
    programs = [block.text for block in blocks(PAGE, "python")]
    assert [
        way in text
        for way, text in zip(
            ("events()", "batches(", "arrow(", "relation(", "TraceTables("), programs, strict=True
        )
    ]


def test_the_views_are_those_that_are_asked() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in VIEWS if f"[{name}](#view-{name})" in text] == list(VIEWS)
    for name, view in VIEWS.items():
        rows = table(section(PAGE, f"View {name}"))
        assert {plain(row[0]): plain(row[1]) for row in rows} == view


def test_the_queries_of_the_page_are_answered(
    run_example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_example("training.py")
    monkeypatch.chdir(run.folder)
    (shown,) = [block.text for block in blocks(PAGE, "text") if "$ dftrace sql" in block.text]
    command, _, want = shown.partition("\n")
    done = invoke(*shlex.split(command)[2:])
    assert (done.status, done.err) == (0, "")
    assert lines_of(done.out) == lines_of(want)
    longest, inner, slow, counter = (
        json.loads(invoke("sql", "out", block.text, "--json").out)
        for block in blocks(PAGE, "sql")
        if "read_parquet" not in block.text
    )
    assert longest[0]["name"] == "train"
    (train,) = [span for span in run.trace.spans if span.name == "train"]
    assert train.ts_ns is not None
    assert longest[0]["at_s"] == pytest.approx(train.ts_ns / 1e9, abs=1e-3)
    assert {row["name"] for row in inner} == {"forward", "backward", "step"}
    assert all(row["n"] == 16 for row in inner)
    assert isinstance(slow, list)
    losses = [event.args["train"] for event in run.trace.of("C") if event.name == "loss"]
    assert counter == [{"process": 0, "first": losses[0], "least": min(losses), "last": losses[-1]}]


def test_the_conversions_of_the_page_are_made_and_read(
    run_example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table(section(PAGE, "Files for other tools"))
    assert [plain(row[0]) for row in rows] == list(FORMS)
    run = run_example("training.py")
    monkeypatch.chdir(run.folder)
    (shown,) = [block.text for block in blocks(PAGE, "text") if "$ dftrace convert" in block.text]
    for command in shown.splitlines():
        done = invoke(*shlex.split(command)[2:], "--force")
        assert done.status == 0, done.err
    (query,) = [block.text for block in blocks(PAGE, "sql") if "read_parquet" in block.text]
    counts = {row[0]: row[1] for row in duckdb.sql(query).fetchall()}
    assert counts == Counter(span.name for span in run.trace.spans)


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


STATS = "tensor_stats"
REPORT_PAGE = DOCS / "guide" / "report.md"


def test_the_commands_write_what_the_page_tells(
    run_example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_example("training.py").folder
    monkeypatch.chdir(folder)
    shown = [
        block.text for block in blocks(REPORT_PAGE, "text") if block.text.startswith("$ dftrace")
    ]
    assert len(shown) == 2
    for text in shown:
        command, _, want = text.partition("\n")
        done = invoke(*shlex.split(command)[2:])
        assert (done.status, done.out, done.err) == (0, want, "")
    page = (folder / "report.html").read_text("utf-8")
    told = [row[0] for row in table(between(REPORT_PAGE, "sections"))][2:]
    found = re.findall(r"<h2 id=s-[a-z]+>([^<]*)</h2>", page)
    without = {"Ranks", "Tensors", "Lines of the program", "(of other packages)"}
    assert found == [name for name in told if name not in without]
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
    told = [re.match(r"\w+", plain(row[0]))[0] for row in table(between(REPORT_PAGE, "run"))]
    assert sorted(told) == sorted(name for name, _ in inspect.getmembers(Run) if name[0] != "_")


def test_the_limits_are_those_of_the_code() -> None:
    text = " ".join(section(REPORT_PAGE, "Limits").split())
    for said in (
        f"{MOST_GROUPS} places of steps, {MOST_FRAMES:,} paths",
        f"{MOST_CHARTS} numbers of counters with {MOST_LINES} processes each",
        f"{MOST_MAPS} heat maps of {MOST_HEAT_ROWS} layers and {MOST_COLUMNS} columns",
        f"{MOST_LAYERS} single layers",
        f"the {MOST_NAMES} names",
        f"the slowest {SLOWEST} steps",
    ):
        assert said in text, said


SUMMARY_PAGE = DOCS / "guide" / "sum-up.md"


def test_the_conditions_are_accepted() -> None:
    (block,) = blocks(SUMMARY_PAGE, "sh")
    for line in block.text.splitlines():
        words = shlex.split(line)
        where_of(words[words.index("--where") + 1])
    rows = dict(table(between(SUMMARY_PAGE, "where")))
    told = set(re.findall(r"`([\w.]+)`", rows["field"]))
    assert told == {*FIELDS, "args.NAME"}
    assert set(OPERATORS) <= set(re.findall(r"`(\S+)`", rows["comparison"]))


def test_every_form_is_on_the_page() -> None:
    text = section(SUMMARY_PAGE, "What has a row")
    listed = set(re.findall(r"`(?:--by )?(\w+)`", " ".join(row[0] for row in table(text))))
    assert listed == {each.value for each in By} - {"name"}
    help_text = invoke("summary", "--help").out
    for option in re.findall(r"`(--\w+)", text):
        assert option in help_text
