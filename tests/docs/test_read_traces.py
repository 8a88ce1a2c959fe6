"""The page on reading traces: its tables against what is read."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from analysis.trace_lines import small_trace

from dftrace_ai.analysis.reading import EndState, TraceSet, open_traces
from dftrace_ai.analysis.reading.columns import COLUMNS
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
        for way, text in zip(("events()", "batches(", "relation("), programs, strict=True)
    ]
