"""The page on reading traces: its tables against what is read."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import get_args

import duckdb
import pytest
from analysis.trace_lines import small_trace
from safety.commands import invoke

from dftrace_ai.analysis.converting import FORMS
from dftrace_ai.analysis.reading import EndState, TraceSet, open_traces
from dftrace_ai.analysis.reading.trace_set import COLUMNS
from dftrace_ai.analysis.sql import VIEWS
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
