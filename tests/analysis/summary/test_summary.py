"""Figures by category and name, held against a computation in plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.trace_lines import small_trace

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary.rows import Row
from dftrace_ai.analysis.summary.table import Summary, summarise

FILES, SPANS = 5, 400


def test_other_events_are_counted_apart(tmp_path: Path) -> None:
    found = summarise([small_trace().write(tmp_path / "t.pfw.gz")])
    assert sum(row.count for row in found.spans) == 4
    assert {(row.kind, row.name): row.count for row in found.others} == {
        ("unfinished span", "epoch.block"): 1,
        ("instant", "best"): 1,
        ("counter", "loss"): 1,
        ("flow", "flow"): 2,
        ("metadata", "CM"): 1,
    }
    assert found.events == 4 + 6
    assert sum(row.count for row in (*found.spans, *found.others)) == found.events
    assert repr(found) == "<summary of 10 events in 1 file: see spans, others>"
    assert found.files[0].losses == {"unfinished": 1}


def test_the_parts_of_loops_are_told_apart(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.span("fetch.block", "dataloader", 1_123_213_646_770_000, 9000, count=1)
    trace.footer()
    found = summarise([trace.write(tmp_path / "t.pfw")])
    assert {row.name: row.loop for row in found.spans} == {
        "fetch.block": "body",
        "fetch.iter": "wait",
        "forward": None,
        "train": None,
        "item": None,
    }


def test_whole_microseconds_are_summed_too(tmp_path: Path) -> None:
    trace = small_trace(timestamps="epoch_us")
    found = summarise([trace.write(tmp_path / "t.pfw")])
    assert {row.name: row.total_us for row in found.spans}["train"] == 2.0


def warnings_of(path: Path) -> tuple[Summary, str]:
    found = summarise([path])
    return found, "\n".join(found.warnings())


def test_losses_are_said_loudly(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.footer(dropped=12, waits=3, unmatched_stops=1, args_sanitised=2)
    found, told = warnings_of(trace.write(tmp_path / "t.pfw.gz"))
    assert "t.pfw.gz: LOST 12 events" in told
    assert "waited 3 times for a full spool" in told
    assert "1 stop() without a start()" in told
    assert "2 values of arguments replaced" in told
    assert found.to_dict()["files"][0]["losses"]["dropped"] == 12


def test_counts_are_held_against_the_footers(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.footer(events=11)
    _, told = warnings_of(trace.write(tmp_path / "t.pfw"))
    assert "10 events counted where the closing lines say 11" in told


@pytest.mark.parametrize("name", ["t.pfw", "t.pfw.gz", "t.pfw.zst"])
def test_a_torn_file_is_counted_up_to_the_tear(tmp_path: Path, name: str) -> None:
    path = small_trace().write(tmp_path / name, lines_a_block=3)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    found, told = warnings_of(path)
    assert 0 < found.events < 10
    assert found.unreadable_lines == 0
    assert f"{name}: torn: " in told


def test_a_block_broken_in_the_middle_costs_what_follows_in_that_file_only(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "a.pfw.gz", lines_a_block=4)
    small_trace(pid=200).write(tmp_path / "b.pfw.gz")
    broken = bytearray(path.read_bytes())
    second = broken.index(b"\x1f\x8b", 1)
    broken[second + 20 : second + 30] = bytes(10)
    path.write_bytes(broken)
    found, told = warnings_of(tmp_path)
    assert 10 <= found.events < 20
    assert "a.pfw.gz: torn: broken gzip data" in told
    assert "b.pfw.gz" not in told


def test_lines_that_hold_no_event_are_told(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines[6:6] = ["nonsense", '{"half":', "[1,2]"]
    found, told = warnings_of(trace.write(tmp_path / "t.pfw"))
    assert found.unreadable_lines == 3
    assert "3 lines without an event" in told


def test_a_trace_of_another_writer_is_summed(tmp_path: Path) -> None:
    path = tmp_path / "t.pfw"
    path.write_text('[\n{"name":"a","cat":"b","ph":"X","ts":1,"dur":2}\n]\n')
    found, told = warnings_of(path)
    assert found.spans == (Row(None, "b", "a", 1, 2.0, 2.0, 1.0, *[2.0] * 7, None),)
    assert told == ""


def test_numbers_that_are_texts_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.pfw"
    line = (
        '{"id":"%d","name":"open64","cat":"POSIX","pid":"2315","tid":"46","ts":"%d","dur":"%d",'
        '"ph":"X","args":{"fname":"testfile"}}\n'
    )
    begin = 1_698_975_745_976_947
    path.write_text("[\n" + "".join(line % (at, begin + 10 * at, 2 + at) for at in range(3)))
    found, told = warnings_of(path)
    (row,) = found.spans
    assert (row.count, row.total_us, row.max_us, row.wall_us) == (3, 9.0, 4.0, 24.0)
    assert "without an event" not in told
    (block,) = open_traces([path]).batches(["id", "pid", "tid", "start_ns"])
    assert [block[name].tolist() for name in ("id", "pid", "tid")] == [
        [0, 1, 2],
        [2315] * 3,
        [46] * 3,
    ]
    assert block["start_ns"].tolist() == [1000 * (begin + 10 * at) for at in range(3)]


def test_an_empty_file_beside_others(tmp_path: Path) -> None:
    small_trace().write(tmp_path / "a.pfw")
    (tmp_path / "b.pfw.gz").touch()
    found, told = warnings_of(tmp_path)
    assert found.events == 10
    assert told.endswith("b.pfw.gz: the file is empty")
