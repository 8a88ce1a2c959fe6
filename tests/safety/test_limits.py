"""The limits that the page on safety tells are those of the code, and what they say is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines
from docs.pages import DOCS, section, table

from dftrace_ai import database
from dftrace_ai.analysis.reading import decompression, index_file, reader
from dftrace_ai.analysis.reading.importing import archives
from dftrace_ai.analysis.summary import adding
from dftrace_ai.analysis.summary import table as summary
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.validating import rules, validate
from dftrace_ai.cli import summary as summary_command
from safety.commands import invoke

MIB = 1024 * 1024


def figure_mib() -> int:
    """What native code has for the figures that index lines are held against."""
    header = DOCS.parent / "native" / "include" / "dftrace" / "reading" / "traces" / "checking.hpp"
    found = re.search(r"most_figure_bytes = std::size_t\{(\d+)\} << 20", header.read_text("utf-8"))
    assert found is not None
    return int(found[1])


def test_the_page_tells_the_limits() -> None:
    text = section(DOCS / "safety.md", "Reading")
    rows = dict(row[:2] for row in table(text.partition("Memory does not grow")[2]))
    assert list(rows.values()) == [
        f"{reader.LINE_BYTES // MIB} MiB",
        f"{reader.ENDLESS_BYTES // MIB // 1024} GiB",
        f"{reader.LINE_BYTES // MIB} MiB",
        f"{archives.MOST_TIMES} times its size and {archives.SPARE_BYTES // MIB} MiB",
        f"{archives.MOST_TIMES_KEPT} times its size and {archives.SPARE_BYTES // MIB} MiB",
        f"{archives.MOST_MEMBERS:,}",
        # A block of zstd is at least four bytes and gives 128 KiB at most.
        f"{decompression.ZSTD_CRUMB_BYTES // 4 // 8} MiB",
        str(rules.MOST_DEPTH),
        f"{validate.MOST_SPANS:,}",
        f"{adding.MOST_BYTES // MIB // 1024} GiB",
        f"{figure_mib()} MiB",
        f"{index_file.MOST_BYTES // MIB} MiB",
        database.MEMORY_LIMIT.replace("GiB", " GiB"),
        f"{database.MOST_BYTES / MIB / 1024} GiB",
        f"{summary.MOST_SUMMARY_ROWS:,}",
        f"{summary_command.MOST_ROWS:,}",
    ]


def test_names_beyond_the_limit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = TraceLines()
    for number in range(20):
        trace.span(f"n{number}", "compute", number * 100, number + 1)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    monkeypatch.setattr(summary, "MOST_SUMMARY_ROWS", 5)
    found = summarise([path])
    # Those that took longest have rows.
    assert [row.name for row in found.spans] == [f"n{number}" for number in range(19, 14, -1)]
    assert (found.events, found.names_left_out) == (20, 15)
    assert found.warnings() == ["15 names without a row: too many names"]
    monkeypatch.setattr(summary, "MOST_SUMMARY_ROWS", 100)
    monkeypatch.setattr(summary, "MOST_NAME_LETTERS", 50)
    assert 0 < len(summarise([path]).spans) < 10


def test_spans_beyond_the_limit_are_not_sorted_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "MOST_SPANS", 3)
    trace = TraceLines()
    for number in range(5):
        trace.span("s", "compute", number * 100, 150)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    (check,) = validate.validate_traces([path]).files
    assert check.fault_count == 1
    assert check.notes == (
        "whether spans nest was checked for the first 3 of them only; 2 spans more",
    )
    done = invoke("validate", path)
    assert done.err.splitlines()[0] == f"dftrace: {path}: {check.notes[0]}"


def test_figures_that_need_too_much_memory_are_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "MOST_BYTES", 30 << 20)
    trace = TraceLines()
    for number in range(400):
        trace.span(f"{number}" * 50_000, "compute", number * 100, 50)
    path = trace.write(tmp_path / "t.pfw.gz")
    done = invoke("summary", path)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("dftrace: the traces cannot be added up in 30 MiB of memory")
    assert len(done.err.splitlines()) == 1
