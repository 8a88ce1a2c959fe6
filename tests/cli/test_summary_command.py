"""The table, the JSON and the order that `dftrace summary` prints, held against known spans."""

from __future__ import annotations

import csv
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines, small_trace
from cli.summed_up import MS, as_json, sums, table_rows
from conftest import Traced
from safety.commands import at_terminal, invoke

from dftrace_ai.cli.terminal import time_text


def on_screen(*words: object, width: int) -> tuple[int, str]:
    """The exit status, and what a terminal of this width shows, without its colours."""
    status, text = at_terminal(*words, env={"TERM": "xterm", "COLUMNS": str(width)})
    return status, re.sub(r"\x1b\[[\d;]*m", "", text)


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


def test_the_share_is_self_time_of_wall_time(steps: Path) -> None:
    rows = table_rows(invoke("summary", steps).out)
    assert rows["step"] == "pipeline step 10 1 s 250 ms 25.0%".split() + ["100", "ms"] * 5
    assert rows["forward"][3:8] == ["300", "ms", "300", "ms", "30.0%"]
    assert rows["backward"][3:8] == ["450", "ms", "450", "ms", "45.0%"]
    found = as_json(steps)
    assert found["format"] == 2
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


@pytest.mark.parametrize("width", [30, 50, 80, 120])
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


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks on two hosts: rank 0 in two parts, rank 10 slower; a loader that says no rank."""
    out = tmp_path / "job"
    for rank, pid, host, ms in ((0, 100, "a", 10), (10, 200, "b", 30)):
        for part in range(2 - bool(rank)):
            trace = TraceLines(pid, host=host, rank=rank)
            for step in range(4):
                at = (part * 4 + step) * 100 * MS
                trace.span("forward", "compute", at, ms * MS)
                trace.span("loss", "compute", at + 50 * MS, 2 * MS)
                trace.span("step.block", "pipeline", at, 90 * MS)
            trace.footer()
            trace.write(out / f"t-{host}-{pid}{'.part1' if part else ''}.pfw.gz")
    loader = TraceLines(300, host="b")
    loader.span("item", "data", 0, 5 * MS)
    loader.footer()
    loader.write(out / "t-b-300.pfw")
    return out


def test_ranks_hosts_and_processes_are_added_up_apart(job: Path) -> None:
    ranks = as_json(job, "--by", "rank")
    assert ranks["by"] == "rank"
    assert sums(ranks) == {
        ("0", "forward"): (8, 80_000),
        ("0", "loss"): (8, 16_000),
        ("0", "step.block"): (8, 720_000),
        ("10", "forward"): (4, 120_000),
        ("10", "loss"): (4, 8_000),
        ("10", "step.block"): (4, 360_000),
        ("-", "item"): (1, 5_000),
    }
    assert [row["group"] for row in ranks["spans"]] == ["0"] * 3 + ["10"] * 3 + ["-"]
    # Of the time from the first event of each process to its last, over both parts of a file.
    shares = {(row["group"], row["name"]): row["share"] for row in ranks["spans"]}
    assert shares["0", "forward"] == pytest.approx(80 / 790)
    assert shares["10", "forward"] == pytest.approx(120 / 390)
    assert shares["-", "item"] == 1
    hosts = sums(as_json(job, "--by", "host"))
    assert {group for group, _ in hosts} == {"a", "b"}
    assert hosts["b", "item"] == (1, 5_000)
    processes = sums(as_json(job, "--by", "process"))
    assert {group for group, _ in processes} == {"a:100", "b:200", "b:300"}
    # Files, other events and counts are those of all.
    whole = as_json(job)
    for member in ("files", "others", "events", "warnings"):
        assert ranks[member] == whole[member]
    rows = [line.split() for line in invoke("summary", job, "--by", "rank").out.splitlines()]
    assert ["rank", "category", "name"] in [row[:3] for row in rows]
    assert ["10", "compute", "forward", "4", "120", "ms"] in [row[:6] for row in rows]


def test_rows_are_sorted_and_cut(job: Path) -> None:
    for sort in ("total", "self", "count", "mean", "p99", "max"):
        member = "count" if sort == "count" else f"{sort}_us"
        rows = as_json(job, "--by", "rank", "--sort", sort)["spans"]
        assert len(rows) == 7
        values = [row[member] for row in rows if row["loop"] is None]
        assert all(before >= after for before, after in pairwise(values))
    found = as_json(job, "--top", 2)
    assert [row["name"] for row in found["spans"]] == ["forward", "loss", "step.block"]
    assert found["rows_left_out"] == 1
    out = invoke("summary", job, "--top", 2).out
    assert list(table_rows(out)) == ["forward", "loss", "step.block"]
    assert "1 row more, which --top leaves out" in out
    # Shares are of all rows, also of those that are not printed.
    assert found["spans"][0]["share"] == pytest.approx(200 / 1180)


def test_csv_has_all_figures_of_the_rows(job: Path, tmp_path: Path) -> None:
    done = invoke("summary", job, "--csv", "--by", "rank")
    assert done.status == 0
    read = list(csv.DictReader(done.out.splitlines()))
    rows = as_json(job, "--by", "rank")["spans"]
    assert [[*row.values()] for row in read] == [
        ["" if value is None else str(value) for value in row.values()] for row in rows
    ]
    assert list(read[0]) == list(rows[0])
    trace = TraceLines()
    trace.span('a,"b"\n\x1b[2J', "compute", 0, 5)
    trace.footer()
    text = invoke("summary", "--csv", trace.write(tmp_path / "t.pfw")).out
    assert "\x1b" not in text
    assert [row["name"] for row in csv.DictReader(text.splitlines())] == [r'a,"b"\n\x1b[2J']
    assert invoke("summary", job, "--csv", "--json").status == 2


ACTS = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-x", "\uff1d1", "-1.5", "plain=1"]


def test_what_a_spreadsheet_or_a_terminal_would_obey_is_made_harmless(tmp_path: Path) -> None:
    trace = TraceLines()
    for number, name in enumerate([*ACTS, "\x9b2J"]):
        trace.span(name, "compute", 10 * number, 5)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    safe = {"'" + name if name not in ACTS[-2:] else name for name in ACTS}
    query = "select name, -dur_ns as dur_ns from spans"
    for words in (("summary", path), ("sql", path, query)):
        done = invoke(*words, "--csv")
        rows = list(csv.DictReader(done.out.splitlines()))
        assert safe < {row["name"] for row in rows}
        assert all(float(row.get("dur_ns", -1)) < 0 for row in rows)
        done = invoke(*words, "--json")
        assert "\x9b" not in done.out
        found = json.loads(done.out)
        named = found["spans"] if isinstance(found, dict) else found
        assert {row["name"] for row in named} == {*ACTS, "\x9b2J"}


@pytest.mark.parametrize(
    "words",
    [
        ("--tree", "--csv"),
        ("--tree", "--by", "rank"),
        ("--tree", "--sort", "self"),
        ("--tensors", "--csv"),
        ("--tensors", "--top", 3),
        ("--tree", "--tensors"),
    ],
)
def test_forms_that_do_not_go_together_are_refused(steps: Path, words: tuple[object, ...]) -> None:
    done = invoke("summary", steps, *words)
    assert (done.status, done.out) == (2, "")
    assert "cannot be given together" in " ".join(done.err.split())


def test_a_rank_is_shown_with_its_place_in_a_parallel_training(traced: Traced) -> None:
    import dftrace_ai

    for rank, layout in enumerate(("dp=0,pp=1", None)):
        with traced(perfetto=False, rank=rank, world_size=2, layout=layout) as run:
            with dftrace_ai.ai.compute.forward:
                pass
    done = invoke("summary", run.folder.parent, "--by", "rank")
    rows = [line.split() for line in done.out.splitlines() if "forward" in line]
    assert [row[: row.index("forward")] for row in rows] == [
        ["0", "dp=0,pp=1", "compute"],
        ["1", "compute"],
    ]
    said = as_json(run.folder.parent, "--by", "rank")
    assert [row["group"] for row in said["spans"]] == ["0", "1"]
    assert [(file["rank"], file["layout"]) for file in said["files"]] == [
        (0, "dp=0,pp=1"),
        (1, None),
    ]
