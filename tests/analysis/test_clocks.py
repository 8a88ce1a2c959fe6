"""Clocks that were wrong: what cannot be is told by every command in a line, and misleads none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis.trace_lines import TraceLines
from analysis.why.made_runs import START_NS, Lines, Training
from hypothesis import given, settings
from hypothesis import strategies as st
from safety.commands import invoke

from dftrace_ai._reader import Totals
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.clock_faults import TimeCounts, set_back
from dftrace_ai.analysis.why import why

HOUR_NS = 3_600_000_000_000
BASE_US = 1_762_560_000_000_000
STARVED = Training(item_ms=20, steps=60)


def loop(lines: TraceLines, steps: int = 60, at_ns: int = START_NS) -> TraceLines:
    """A training that nothing is wrong with."""
    for step in range(steps):
        begin = at_ns + step * 20_000_000
        lines.span("fetch.iter", "dataloader", begin, 400_000, count=step + 1)
        lines.span("forward", "compute", begin + 500_000, 9_000_000)
        lines.span("backward", "compute", begin + 9_600_000, 8_000_000)
        lines.span("step", "compute", begin + 17_700_000, 1_500_000)
        lines.span("fetch.block", "dataloader", begin + 400_000, 19_500_000, count=step + 1)
    return lines


def rank(number: int, world: int = 4, *, at_ns: int = START_NS, **header: Any) -> TraceLines:
    return loop(Lines(100 + number, rank=number, world_size=world, **header), at_ns=at_ns)


def closed(lines: TraceLines, path: Path, **footer: Any) -> Path:
    lines.footer(**footer)
    return lines.write(path, 10**6)


def told(folder: Path) -> set[str]:
    """The line that the commands say of clocks: each the same, and in its JSON as well."""
    found: set[str] = set()
    for command in ("info", "summary", "validate", "why", "report"):
        page = ["-o", folder.with_suffix(".html")] if command == "report" else []
        done = invoke(command, folder, *page)
        value = json.loads(invoke(command, folder, "--json").out)
        lines = value.get("notes", value.get("warnings", value.get("losses")))
        said = [line for line in lines if line.startswith("clocks: ")]
        assert (done.out + done.err).count("clocks: ") == len(said) <= 1, command
        found |= {line.partition("clocks: ")[2] for line in said} or {"nothing"}
    return found


FAR_US = {
    "1970": -BASE_US,
    "2^62 ns": (1 << 62) // 1000 - BASE_US,
    "2^62 us": 1 << 62,
    "1e30 us": 10**30,
    "before all times": -(10**30),
}


@pytest.mark.parametrize("far", FAR_US)
def test_times_that_cannot_be_are_counted_and_left_out(tmp_path: Path, far: str) -> None:
    lines = rank(0, 1)
    before = why([closed(rank(0, 1), tmp_path / "before" / "t-host-100.pfw")])
    ts = FAR_US[far]
    for number in range(3):
        line = (
            '{"id":%d,"name":"step","cat":"compute","pid":100,"tid":100,"ts":%d,"dur":7,"ph":"X"}'
        )
        lines.add(line % (9000 + number, ts + number))
    path = closed(lines, tmp_path / "after" / "t-host-100.pfw.gz")
    (line,) = told(path.parent)
    assert line == (f"3 events in 1 file at times that cannot be, years from all others: {path}")
    after = why([path])
    assert (after.verdict, after.length_ns) == (before.verdict, before.length_ns)
    assert after.steps == before.steps
    value = json.loads(invoke("summary", path, "--json").out)
    assert value["length_us"] < 2e6
    assert max(row["share"] for row in value["spans"]) > 0.3
    (file,) = json.loads(invoke("info", path, "--json").out)["files"]
    assert file["length_us"] < 2e6


@pytest.mark.parametrize("dates", [1, 2])
def test_dates_cannot_be_where_most_times_are_none(tmp_path: Path, dates: int) -> None:
    (trace,) = open_traces([rank(0, 1).write(tmp_path / "t.pfw")])
    times = TimeCounts(trace)
    start_ns = np.array([5, 6, BASE_US * 1000, BASE_US * 1000 + 9][: 2 + dates])
    times.add(np.full(len(start_ns), ord("X")), start_ns, np.ones(len(start_ns), np.int64))
    dated = dates == 2
    assert times.times.odd == (2 if dated else 1)
    assert times.times.reach == ((BASE_US * 1000, BASE_US * 1000 + 10) if dated else (5, 7))


def test_a_rank_whose_clock_is_hours_away_is_named(tmp_path: Path) -> None:
    for number in range(4):
        at_ns = START_NS + (3 * HOUR_NS if number == 2 else number * 1_000_000_000)
        closed(rank(number, at_ns=at_ns), tmp_path / "out" / f"t-host-{100 + number}.pfw.gz")
    (line,) = told(tmp_path / "out")
    assert line == (
        "run 00ff: 1 rank recorded nothing within 3 h of the other 3, as where clocks differ: 2"
    )


def test_a_worker_whose_clock_is_hours_away_gives_no_cause(tmp_path: Path) -> None:
    """Waits are waits, but that the workers were idle is not known."""
    assert why([STARVED.write(tmp_path / "right", 1)]).findings[0].cause == "workers"
    folder = STARVED.write(tmp_path / "wrong", 1)
    for path in folder.glob("t-host-2*.pfw"):
        moved = path.read_text().replace('"time_base_us":1762560', '"time_base_us":1762570')
        path.write_text(moved)
    (line,) = told(folder)
    assert line == "4 processes recorded nothing within 2.78 h of those that have started them"
    (finding,) = why([folder]).findings
    assert (finding.kind, finding.cause) == ("input-bound", "")


def test_what_may_well_be_is_not_told(tmp_path: Path) -> None:
    """Ranks that died early, a flight recorder, a deleted part, a job of several launches, Chrome."""
    out = tmp_path / "out"
    early, late = rank(0), rank(1)
    early.span("train", "pipeline", START_NS, 9 * HOUR_NS)
    late.span("train", "pipeline", START_NS + HOUR_NS // 2, 60)
    closed(early, out / "t-host-100.pfw.gz")
    closed(late, out / "t-host-101.pfw.gz")
    flight = rank(2, at_ns=START_NS + 20 * HOUR_NS)
    closed(flight, out / "t-host-102.pfw.gz", overwritten=7)
    parted = rank(3, at_ns=START_NS + 20 * HOUR_NS)
    closed(parted, out / "t-host-103.part3.pfw.gz")
    for number in range(2):  # once more, after a day
        again = rank(number, 2, at_ns=START_NS + 24 * HOUR_NS)
        closed(again, out / f"u-host-{100 + number}.pfw.gz")
    chrome = [
        json.dumps({"ph": "X", "cat": "a", "name": "b", "pid": 1, "tid": 1, "ts": at, "dur": 1})
        for at in (0, 5, 10_000_000_000)
    ]
    (out / "chrome.pfw").write_text("[\n" + "\n".join(chrome) + "\n")
    assert told(out) == {"nothing"}


def foreign(path: Path, *, back_ns: int, steps: int = 80) -> Path:
    """A loop as a recorder without a header writes it, by a wall clock that was set back."""
    lines = loop(TraceLines(), steps // 2)
    loop(lines, steps // 2, START_NS + steps // 2 * 20_000_000 - back_ns)
    lines.lines = ["[", *(line for line in lines.lines if '"ph":"X"' in line)]
    return lines.write(path, 10**6)


def test_no_verdict_where_the_clock_was_set_back(tmp_path: Path) -> None:
    assert why([foreign(tmp_path / "right.pfw", back_ns=0)]).steps is not None
    path = foreign(tmp_path / "back.pfw", back_ns=2 * HOUR_NS)
    verdict = why([path])
    assert (verdict.verdict, verdict.findings, verdict.of_some_ranks) == ("abstained", (), ())
    (silent,) = verdict.abstained
    assert silent.why == "its times go back by 2 h: the clock was set while it ran"
    assert verdict.notes[0] == f"clocks: times in 1 file go back by 2 h, in 1 place: {path}"


@pytest.mark.parametrize("indexed", [False, True])
def test_a_clock_that_was_set_back_is_told_by_every_command(tmp_path: Path, indexed: bool) -> None:
    out = tmp_path / "out"
    out.mkdir()
    foreign(out / "a.pfw", back_ns=0)
    one = foreign(out / "b.pfw", back_ns=2 * HOUR_NS)
    if indexed:
        assert invoke("index", out).status == 0
        assert one.with_name("b.dfindex").exists()
    assert told(out) == {f"times in 1 file go back by 2 h, in 1 place: {one}"}
    foreign(out / "c.pfw", back_ns=5 * HOUR_NS)
    if indexed:
        assert invoke("index", out).status == 0
    assert told(out) == {f"times in 2 files go back by up to 5 h, in 1 place: {one}, ..."}


def lines_of(spans: list[tuple[int, int, int]]) -> bytes:
    form = '{"name":"a","cat":"b","pid":1,"tid":%d,"ts":%d.%03d,"dur":%d.%03d,"ph":"X"}\n'
    each = (
        form % (tid, *divmod(start, 1000), *divmod(length, 1000)) for tid, start, length in spans
    )
    return "".join(each).encode()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_reader_finds_the_same_places(data: st.DataObject) -> None:
    """The native one and that of columns, in files with and without an order."""
    at = data.draw(st.sampled_from([START_NS, 5 * HOUR_NS]))
    spans = []
    for _ in range(data.draw(st.integers(1, 8))):
        at += data.draw(st.sampled_from([0, 1, -1, 2, -2, -3, 300_000])) * HOUR_NS
        for _ in range(data.draw(st.sampled_from([1, 9, 10, 11, 30]))):
            at += data.draw(st.sampled_from([0, 1000, 60_000_000_000]))
            length = data.draw(st.sampled_from([0, 500, HOUR_NS + 1]))
            spans.append((data.draw(st.integers(1, 2)), max(at, 0), length))
    totals = Totals(2, 1 << 28)
    totals.add_lines(lines_of(spans))
    if totals.end_process():
        totals.add_lines(lines_of(spans))
        totals.end_process()
    tracks = ([span[1:] for span in spans if span[0] == tid] for tid in (1, 2))
    assert totals.clock() == set_back(tracks)


def test_spans_without_times_are_counted(tmp_path: Path) -> None:
    lines = rank(0, 1)
    for times in ('"ts":5,"dur":-7', '"dur":5', '"ts":"x","dur":5', '"ts":null,"dur":5'):
        line = '{"id":9000,"name":"a","cat":"b","pid":100,"tid":100,%s,"ph":"X"}' % times
        lines.add(line)
    path = closed(lines, tmp_path / "t-host-100.pfw")
    notes = why([path]).notes
    assert f"{path}: 1 span without a duration, or with one below 0, left out" in notes
    assert f"{path}: 3 spans without a time, or with one below 0, left out" in notes
