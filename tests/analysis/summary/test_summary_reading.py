"""Self time, and files of every form."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines, small_trace

from dftrace_ai.analysis.summary import adding
from dftrace_ai.analysis.summary.table import Summary, summarise
from dftrace_ai.errors import TraceError


def self_ns(found: Summary) -> dict[str, int]:
    return {row.name: round(row.self_us * 1000) for row in found.spans if row.self_us is not None}


@pytest.mark.parametrize("ids", [True, False])
def test_self_time_of_spans_in_any_order(tmp_path: Path, ids: bool) -> None:
    inside = [("inner", number * 100, 60) for number in range(1000)]
    spans = [*inside, ("outer", 0, 50_000), ("outer", 50_000, 50_000), ("all", 0, 200_000)]
    # By start, as other writers have it; and with one span where the user's times put it.
    by_start = sorted(spans, key=lambda span: (span[1], -span[2]))
    late = [*spans[1:], spans[0]]
    for order in (spans, by_start, late, spans[::-1]):
        trace = TraceLines()
        for name, start, duration in order:
            # Wrong parents cost time at most.
            more = {"p_idx": start % 3, "level": 2} if ids else {}
            trace.event("X", name, "c", start, duration, hhash="x", **more)
        trace.footer()
        found = summarise([trace.write(tmp_path / "t.pfw.gz", lines_a_block=300)])
        assert self_ns(found) == {"inner": 60_000, "outer": 40_000, "all": 100_000}
        assert found.warnings() == []


def test_the_parts_of_a_trace_are_one_track(tmp_path: Path) -> None:
    for number, name in enumerate(["t-1", "t-1.part1", "t-1.part2", "t-1.part10"]):
        trace = TraceLines()
        trace.span("step", "c", number * 1000, 700, p_idx=9, level=2)
        if number == 3:
            trace.span("train", "c", 0, 5000)
        trace.footer()
        trace.write(tmp_path / f"{name}.pfw.gz")
    found = summarise([tmp_path])
    assert self_ns(found) == {"step": 2800, "train": 5000 - 2800}
    assert [Path(file.path).name for file in found.files] == sorted(
        path.name for path in tmp_path.iterdir()
    )


def test_a_file_of_one_huge_block_is_as_one_of_many(tmp_path: Path) -> None:
    trace = TraceLines()
    for number in range(60_000):
        trace.span(f"n{number % 5}", "c", number * 1000, number % 900, note="x" * 200)
    trace.footer()
    assert len(trace.text) > 16 << 20
    many = trace.write(tmp_path / "many.pfw.gz", lines_a_block=5000)
    one = tmp_path / "one.pfw.gz"
    # With lines that go on in the next block, too.
    half = len(trace.text) - 1000
    one.write_bytes(gzip.compress(trace.text[:half], 1) + gzip.compress(trace.text[half:]))
    found = summarise([one])
    assert found.warnings() == []
    assert found.spans == summarise([many]).spans


def test_a_file_that_still_grows_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    trace = small_trace()
    whole = trace.write(tmp_path / "t.pfw.gz", lines_a_block=4).read_bytes()
    counts = []
    for size in range(0, len(whole), 29):
        path = tmp_path / "growing.pfw.gz"
        path.write_bytes(whole[:size])
        found = summarise([path])
        counts.append(found.events)
        assert found.unreadable_lines == 0
        (warning,) = found.warnings()
        expected = ("torn: ", "no closing line") if size else ("the file is empty",)
        assert any(words in warning for words in expected)
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 10)


def test_names_that_need_too_much_memory_are_refused_and_nothing_is_lost_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = TraceLines()
    for number in range(3000):
        trace.span(f"{number}-" + "n" * 1000, "c", number * 10, 5)
    path = trace.write(tmp_path / "t.pfw.gz", lines_a_block=100)
    assert len(summarise([path]).spans) == 3000
    with monkeypatch.context() as patch:
        patch.setattr(adding, "MOST_BYTES", 1 << 20)
        with pytest.raises(TraceError, match="in 1 MiB of memory; give fewer"):
            summarise([path])
    assert len(summarise([path]).spans) == 3000


def test_figures_of_many_names_are_those_of_few(tmp_path: Path) -> None:
    # Beyond 65,536 names the threads have figures in common.
    trace = TraceLines()
    for number in range(70_000):
        trace.span(f"n{number}", "c", number * 10, 5)
    for number in range(3000):
        trace.span("n3", "c", (70_000 + number) * 10, number % 10)
        trace.instant("i", number)
    trace.footer()
    found = summarise([trace.write(tmp_path / "t.pfw.gz", lines_a_block=2000)])
    assert (found.events, len(found.spans)) == (76_000, 70_000)
    rows = {row.name: row for row in found.spans}
    assert (rows["n3"].count, round(rows["n3"].total_us * 1000)) == (3001, 5 + 300 * 45)
    assert {row.count for name, row in rows.items() if name != "n3"} == {1}
    assert [row.count for row in found.others] == [3000]
