"""The table, the JSON and the order that `dftrace summary` prints, held against known spans."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from analysis.trace_lines import TraceLines, small_trace
from safety.commands import at_terminal, invoke

from dftrace_ai.cli.terminal import time_text

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "summary.schema.json").read_text())
MS = 1_000_000


def as_json(*words: object) -> dict[str, Any]:
    done = invoke("summary", "--json", *words)
    assert done.status == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    jsonschema.validate(found, SCHEMA)
    assert set(found) == set(SCHEMA["properties"])
    return found


def on_screen(*words: object, width: int) -> tuple[int, str]:
    """The exit status, and what a terminal of this width shows, without its colours."""
    status, text = at_terminal(*words, env={"TERM": "xterm", "COLUMNS": str(width)})
    return status, re.sub(r"\x1b\[[\d;]*m", "", text)


def table_rows(text: str) -> dict[str, list[str]]:
    """The words of each row of spans, by the name of the span."""
    rows = (line.split() for line in text.splitlines())
    return {words[1]: words for words in rows if len(words) > 4 and words[2].isdecimal()}


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Ten steps of 100 ms, of which 30 ms are a forward and 45 ms a backward."""
    trace = TraceLines()
    for step in range(10):
        at = step * 100 * MS
        trace.span("forward", "compute", at, 30 * MS)
        trace.span("backward", "compute", at + 40 * MS, 45 * MS)
        trace.span("step", "pipeline", at, 100 * MS)
    trace.footer()
    return trace.write(tmp_path / "out" / "t.pfw.gz")


def test_times_are_in_the_units_that_people_read() -> None:
    assert [
        time_text(micros)
        for micros in (
            *(0, 0.05, 0.4, 0.9996, 45, 999.4, 999.6, 3200, 1_838_200),
            *(999_600_000, 7_200_000_000),
        )
    ] == [
        *("0 ns", "50 ns", "400 ns", "1 us", "45 us", "999 us", "1 ms", "3.2 ms", "1.84 s"),
        *("1,000 s", "7,200 s"),
    ]


def test_the_share_is_that_of_self_time(steps: Path) -> None:
    rows = table_rows(invoke("summary", steps).out)
    assert rows["step"] == "pipeline step 10 1 s 250 ms 25.0%".split() + ["100", "ms"] * 5
    assert rows["forward"][3:8] == ["300", "ms", "300", "ms", "30.0%"]
    assert rows["backward"][3:8] == ["450", "ms", "450", "ms", "45.0%"]
    found = as_json(steps)
    assert found["format"] == 1
    assert {row["name"]: (row["self_us"], row["share"]) for row in found["spans"]} == {
        "step": (250_000, 0.25),
        "forward": (300_000, 0.3),
        "backward": (450_000, 0.45),
    }


def test_spans_that_take_no_time_have_no_share(tmp_path: Path) -> None:
    trace = TraceLines()
    trace.span("blink", "compute", 100, 0)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    assert table_rows(invoke("summary", path).out)["blink"][3:8] == ["0", "ns", "0", "ns", "-"]
    assert as_json(path)["spans"][0]["share"] is None


def test_an_empty_trace_has_an_empty_table(tmp_path: Path) -> None:
    trace = TraceLines()
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    assert "0 events in 1 file" in invoke("summary", path).out
    assert as_json(path)["spans"] == []


@pytest.mark.parametrize("width", [30, 50, 80, 120, 240])
def test_figures_give_way_to_a_narrow_terminal_and_that_is_said(steps: Path, width: int) -> None:
    status, text = on_screen("summary", steps, width=width)
    lines = text.splitlines()
    assert status == 0
    assert max(map(len, lines)) <= width
    if width > 30:
        rows = [line for line in lines if " ms" in line or " s " in line]
        assert len(rows) == 3
        # Nothing is folded or cut, and figures stand below each other.
        assert {len(row.rstrip()) for row in rows} == {len(rows[0].rstrip())}
        assert "…" not in text
    said = " ".join(text.split())
    assert ("no room for" in said) == (width < 120)
    if width == 50:
        assert "no room for share, mean, p50, p95, p99, max;" in said


def test_what_is_not_whole_stands_below_the_table(tmp_path: Path) -> None:
    small_trace().write(tmp_path / "out" / "a.pfw.gz")
    lost = small_trace(pid=200)
    lost.lines.pop()
    lost.footer(dropped=12, waits=3)
    lost.write(tmp_path / "out" / "b.pfw.gz")
    (tmp_path / "out" / "c.pfw").write_bytes(b"\x89PNG\r\n")
    status, text = at_terminal("summary", tmp_path / "out")
    assert status == 1
    below = text[text.index("20 events in 2 files") :]
    for part in ("2 spans without an end", "skipped: ", "LOST 12 events", "waited 3 times"):
        assert part in below
