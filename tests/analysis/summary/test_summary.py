"""Figures by category and name, self time, losses, and files of every form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from analysis.trace_lines import TraceLines, small_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai._reader import EventScanner
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.event_columns import BlockArguments
from dftrace_ai.analysis.summary.table import Summary, summarise


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
    assert repr(found) == "<summary of 10 events in 2 files: see spans, others>"
    assert found.files[0].losses == {"unfinished": 1}
    assert told.endswith("b.pfw.gz: the file is empty")


def self_ns(found: Summary) -> dict[str, int]:
    return {row.name: round(row.self_us * 1000) for row in found.spans if row.self_us is not None}


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


NONE = -(2**63)

keys = st.sampled_from(["step", "st\\u0065p", "steps", "s", "epoch", 'a\\"step', "step\\\\"])
numbers = st.integers(-(2**63), 2**63 - 1).map(str)
leaves = st.one_of(
    numbers,
    st.sampled_from(["0", "-0", "1.0", "1e3", "true", "null", '""', '"step"', '"\\"step\\":5"']),
    st.sampled_from(['"17"', '"-3"', '"007"', '"1.5"', '" 1"', '"\\u0031"', '"step\\":9,"']),
    st.sampled_from(["99999999999999999999", '"9999999999999999999"', '"999999999999999999"']),
)
blanks = st.sampled_from(["", "", "", " ", "\t"])


@st.composite
def objects(draw: st.DrawFn, depth: int = 1) -> str:
    values: Any = leaves if not depth else st.one_of(leaves, objects(depth - 1), arrays)
    members = [
        f'"{draw(keys)}"{draw(blanks)}:{draw(blanks)}{draw(values)}{draw(blanks)}'
        for _ in range(draw(st.integers(0, 4)))
    ]
    return "{" + draw(blanks) + ",".join(members) + "}"


arrays = st.lists(leaves, max_size=2).map(lambda values: f"[{','.join(values)}]")


def wanted(args: str) -> int:
    value = json.loads(args).get("step")
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and abs(value) < 2**63 else NONE


@settings(max_examples=400, deadline=None)
@given(every=st.lists(objects(), max_size=5))
def test_a_number_is_that_which_json_has(every: list[str]) -> None:
    lines = [f'{{"name":"a","ph":"i","ts":1,"args":{args}}}\n' for args in every]
    lines += ['{"name":"a","ph":"i","ts":1}\n']
    block = EventScanner(1 << 20).scan("".join(lines).encode())
    found = memoryview(block.numbers("none of these", "step")).cast("q").tolist()
    assert found[::2] == [NONE] * len(lines)
    found = found[1::2]
    assert found == [*map(wanted, every), NONE]
    again = BlockArguments.of(block).numbers_of(np.arange(block.rows), ["step", "none of these"])
    assert again.tolist() == [found, [NONE] * len(lines)]
