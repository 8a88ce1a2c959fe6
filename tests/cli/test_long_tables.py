"""Tables with more rows than are printed: the worst are there, the rule is said, and all can be had."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines
from safety.commands import invoke

RANKS, NAMES = 120, 10
LATE, LATE_NAME = 77, 6


@pytest.fixture(scope="module")
def many_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of many ranks, one of which takes long in one of ten names, and did not end."""
    folder = tmp_path_factory.mktemp("many")
    for rank in range(RANKS):
        trace = TraceLines(pid=1000 + rank, rank=rank)
        for name in range(NAMES):
            is_late = (rank, name) == (LATE, LATE_NAME)
            trace.span(f"n{name}", "compute", 1000 * name, 900 if is_late else 100 + name)
        if rank != LATE:
            trace.footer()
        trace.write(folder / f"t-{rank:03}.pfw.gz")
    return folder


def words(text: str) -> str:
    return " ".join(text.split())


def test_by_rank_each_name_has_a_row_and_the_one_that_differs_is_first(many_ranks: Path) -> None:
    out = invoke("summary", "--by", "rank", many_ranks).out
    rows = [line.split() for line in out.splitlines() if line.lstrip().startswith("compute ")]
    assert [row[1] for row in rows][0] == f"n{LATE_NAME}"
    assert len(rows) == NAMES
    assert str(LATE) in rows[0]
    assert "+794 ns" in " ".join(rows[0])
    told = (
        "one row for each name in place of 1,200 rows, those first in which a rank has most above"
    )
    assert told in words(out)


def test_all_has_all_and_so_have_the_forms_for_programs(many_ranks: Path) -> None:
    call = ("summary", "--by", "rank", many_ranks)
    out = invoke(*call, "--all").out
    assert len(re.findall(r"^ +\d+ +compute ", out, re.MULTILINE)) == RANKS * NAMES
    assert "in place of" not in out
    assert len(json.loads(invoke(*call, "--json").out)["spans"]) == RANKS * NAMES
    rows = list(csv.DictReader(io.StringIO(invoke(*call, "--csv").out)))
    assert len(rows) == RANKS * NAMES


def test_files_that_did_not_end_are_among_those_shown(
    many_ranks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dftrace_ai.cli import long_tables

    monkeypatch.setattr(long_tables.worst, "__kwdefaults__", {"every": False, "most": 5})
    out = invoke("info", many_ranks).out
    shown = re.findall(r"t-(\d{3})\.pfw", re.sub(r"\s", "", out))
    assert shown[0] == f"{LATE:03}"
    assert len(shown) == 5
    rule = "files that did not end in order or lost something first, then the largest"
    assert f"115 rows more; shown are {rule}; --all prints all" in words(out)
    assert (
        len(re.findall(r"t-\d{3}\.pfw", re.sub(r"\s", "", invoke("info", "--all", many_ranks).out)))
        == RANKS
    )
