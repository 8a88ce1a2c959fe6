"""Finding and reading whole, torn and foreign files; traces opened together, and their events as columns."""

from __future__ import annotations

import gc
import gzip
import json
import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zstandard
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace
from sampling import SEED, times

from dftrace_ai._reader import EventScanner, EventTable
from dftrace_ai.analysis.reading import Trace, TraceEnd, TraceSet, open_traces
from dftrace_ai.analysis.reading.event_columns import event_columns
from dftrace_ai.analysis.reading.reader import TraceReader
from dftrace_ai.analysis.reading.trace_set import COLUMNS
from dftrace_ai.errors import TraceError

NAMES = ("a.pfw", "b.pfw.gz", "c.pfw.zst")


def opened(path: Path) -> Trace:
    (trace,) = open_traces([path])
    return trace


def end_of(path: Path) -> TraceEnd:
    return opened(path).end


def lines_of(path: Path) -> tuple[list[bytes], TraceReader]:
    reader = opened(path).reader()
    numbered = list(reader.lines())
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
    return [line for _, line in numbered], reader


def big_trace(path: Path) -> tuple[Path, bytes]:
    """A file of several reading steps, hard to compress."""
    trace = small_trace()
    trace.lines.pop()
    noise = random.Random(1)
    for number in range(4000):
        trace.span(f"{noise.getrandbits(256):x}", "compute", 2_000_000_000_000 + number * 10, 5)
    trace.footer()
    return trace.write(path, 300), trace.text


@pytest.mark.parametrize("name", NAMES)
def test_a_large_file_is_read_over_many_steps(tmp_path: Path, name: str) -> None:
    path, text = big_trace(tmp_path / name)
    lines, reader = lines_of(path)
    assert lines == text.splitlines()
    assert reader.tear is None


@pytest.mark.sampled
def test_a_file_cut_at_any_byte_loses_only_its_last_block(tmp_path: Path) -> None:
    trace = small_trace()
    text = trace.text.splitlines()
    for name in NAMES:
        path = trace.write(tmp_path / name, lines_a_block=4)
        whole = path.read_bytes()
        sizes = range(60, len(whole))
        for size in random.Random(SEED).sample(sizes, times(len(sizes), 0.25)):
            path.write_bytes(whole[:size])
            lines, reader = lines_of(path)
            assert lines == text[: len(lines)]
            assert end_of(path).footer is None or len(lines) == len(text)


def test_plain_text_behind_a_broken_gzip_block_is_told(tmp_path: Path) -> None:
    path, text = big_trace(tmp_path / "t.pfw.gz")
    broken = bytearray(path.read_bytes())
    middle = len(broken) // 2
    broken[middle : middle + 2000] = bytes(2000)
    path.write_bytes(broken)
    lines, reader = lines_of(path)
    # Blocks before the broken one are read as they are; that one may give garbled lines.
    alike = [line == wanted for line, wanted in zip(lines, text.splitlines(), strict=False)]
    assert all(alike[:1500])
    assert len(lines) < len(text.splitlines())
    assert reader.tear is not None
    assert "broken gzip data" in str(reader.tear)


def test_zeros_behind_the_last_block_are_passed_over(tmp_path: Path) -> None:
    trace = small_trace()
    for name in NAMES[1:]:
        path = trace.write(tmp_path / name)
        path.write_bytes(path.read_bytes() + bytes(4096))
        lines, reader = lines_of(path)
        assert lines == trace.text.splitlines()
        assert reader.tear is None
        assert end_of(path).whole


def test_a_last_line_without_newline_counts_when_it_is_whole(tmp_path: Path) -> None:
    trace = small_trace()
    path = tmp_path / "t.pfw"
    path.write_bytes(trace.text[:-1])
    lines, reader = lines_of(path)
    assert lines == trace.text.splitlines()
    assert reader.tear is None
    path.write_bytes(trace.text[:-2])
    lines, reader = lines_of(path)
    assert lines == trace.text.splitlines()[:-1]
    assert f"line {len(trace.lines)} is cut" in str(reader.tear)


def test_events_of_other_writers_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "t.pfw"
    path.write_text('[\n{"name":"a"},\n{"name":"b"}\nnonsense\n[1]\n\n]\n')
    reader = opened(path).reader()
    assert [(number, event["name"]) for number, event in reader.events()] == [(2, "a"), (3, "b")]
    assert reader.bad_lines == 2


@pytest.mark.parametrize("name", NAMES)
def test_the_footer_is_found_from_the_end(tmp_path: Path, name: str) -> None:
    path, _ = big_trace(tmp_path / name)
    end = end_of(path)
    assert end.whole
    assert end.footer is not None
    assert end.footer.spans == 4004


@pytest.mark.parametrize("name", NAMES)
def test_a_file_without_footer_is_whole_all_the_same(tmp_path: Path, name: str) -> None:
    trace = small_trace()
    trace.lines.pop()
    end = end_of(trace.write(tmp_path / name))
    assert end.whole
    assert end.footer is None


def test_a_footer_in_a_block_of_megabytes_is_found(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    noise = random.Random(1)
    trace.span("noise", "data", 2**50, 5, blob=noise.randbytes(1_500_000).hex())
    trace.footer()
    for name in NAMES:
        assert end_of(trace.write(tmp_path / name, 1000)).footer is not None


class TestOpenTraces:
    def test_directories_are_searched_to_any_depth(self, tmp_path: Path) -> None:
        for name in ("b.pfw.gz", "deep/er/a.pfw", "c.pfw.zst"):
            small_trace().write(tmp_path / name)
        (tmp_path / "notes.txt").write_text("not a trace")
        found = open_traces([tmp_path])
        assert [(trace.path.name, trace.file.codec) for trace in found] == [
            ("b.pfw.gz", "gzip"),
            ("c.pfw.zst", "zstd"),
            ("a.pfw", "plain"),
        ]
        assert all(trace.file.framed for trace in found)

    def test_a_file_named_twice_is_found_once(self, tmp_path: Path) -> None:
        path = small_trace().write(tmp_path / "t.pfw")
        (tmp_path / "link.pfw").symlink_to(path)
        assert len(open_traces([path, tmp_path, path])) == 1

    def test_the_codec_is_told_from_the_bytes(self, tmp_path: Path) -> None:
        text = small_trace().text
        (tmp_path / "a").write_bytes(gzip.compress(text))
        (tmp_path / "b").write_bytes(zstandard.compress(text))
        (tmp_path / "c.gz").write_bytes(text)
        assert [
            trace.file.codec
            for trace in open_traces(tmp_path / name for name in ("a", "b", "c.gz"))
        ] == [
            "gzip",
            "zstd",
            "plain",
        ]

    def test_what_is_no_trace_is_named(self, tmp_path: Path) -> None:
        def refused(*paths: Path) -> str:
            with pytest.raises(TraceError) as caught:
                open_traces(paths)
            return str(caught.value)

        assert "no such file" in refused(tmp_path / "missing.pfw")
        assert "no trace files" in refused(tmp_path)
        picture = tmp_path / "x.pfw"
        picture.write_bytes(b"\x89PNG\r\n")
        assert "not a trace" in refused(picture)
        picture.write_bytes(gzip.compress(b"hello"))
        assert "not a trace" in refused(picture)
        picture.write_bytes(b"\x1f\x8b\x08garbage beyond hope")
        assert "not a trace" in refused(picture)
        picture.write_bytes(b"\x28\xb5\x2f\xfdgarbage beyond hope")
        assert "not a trace" in refused(picture)
        assert "not a regular file" in refused(Path(os.devnull))

    def test_an_empty_file_is_a_trace_without_events(self, tmp_path: Path) -> None:
        path = tmp_path / "t.pfw.gz"
        path.touch()
        lines, reader = lines_of(path)
        assert lines == []
        assert str(reader.tear) == "the file is empty"
        assert not end_of(path).whole


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        small_trace(100 + number).write(tmp_path / name)
    small_trace(200, timestamps="epoch_us").write(tmp_path / "d.pfw.gz")
    return tmp_path


def rows_of(traces: TraceSet, rows: int = 7) -> list[dict[str, object]]:
    """The rows of all batches, as the lines have them."""
    found = []
    for batch in traces.batches(rows=rows):
        assert tuple(batch) == COLUMNS
        sizes = {len(values) for values in batch.values()}
        assert len(sizes) == 1
        assert 0 < sizes.pop() <= rows
        columns = [values.tolist() for values in batch.values()]
        found += [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    return found


def expected_rows(traces: TraceSet) -> list[dict[str, object]]:
    """The same from the lines, in Python."""
    rows = []
    for number, trace in enumerate(traces):
        assert trace.header is not None
        base_ns = (trace.header.time_base_us or 0) * 1000
        for _, event in trace.events():
            args = json.dumps(event["args"]) if "args" in event else ""
            time = round(event["ts"] * 1000) + base_ns if "ts" in event else -1
            rows.append(
                {
                    "file": number,
                    "ph": event["ph"],
                    "cat": event["cat"],
                    "name": event["name"],
                    "id": event.get("id", 0),
                    "pid": event["pid"],
                    "tid": event["tid"],
                    "start_ns": time,
                    "dur_ns": round(event["dur"] * 1000) if "dur" in event else -1,
                    "args": args,
                }
            )
    return rows


def plain(rows: list[dict[str, object]]) -> Counter[str]:
    """Rows whatever their order, and whatever the spaces in their arguments."""
    same = [{**row, "args": json.loads(str(row["args"]) or "null")} for row in rows]
    return Counter(json.dumps(row, sort_keys=True) for row in same)


def test_batches_hold_every_event_with_all_of_its_digits(directory: Path) -> None:
    traces = open_traces([directory])
    rows = rows_of(traces)
    assert plain(rows) == plain(expected_rows(traces))
    assert [row["file"] for row in rows] == sorted(row["file"] for row in rows)
    assert traces.notes == ()
    types = {name: str(column.dtype) for name, column in next(traces.batches()).items()}
    assert types == {
        **dict.fromkeys(("ph", "cat", "name", "args"), "object"),
        **dict.fromkeys(("pid", "tid", "start_ns", "dur_ns"), "int64"),
        "file": "uint32",
        "id": "uint64",
    }


def test_lines_without_an_event_and_odd_phases_are_told(tmp_path: Path) -> None:
    trace = small_trace()
    for line in (
        '{"name":"no phase","ts":1}',
        '{"name":"torn","ph":"X","ts":1',
        "[1,2]",
        '{"name":"two letters","ph":"ab","pid":1,"tid":2,"args":{"a":"\\u00e9\\ud83d\\ude00"}}',
        '{"name":"a number","ph":2,"ts":-5,"args":{"loss":1e400}},',
        '{"name":"huge","ph":"X","ts":1e300,"dur":1e300,"id":-1,"args":[1]}',
    ):
        trace.add(line)
    path = trace.write(tmp_path / "t.pfw.gz")
    traces = open_traces([path])
    rows = {row["name"]: row for row in rows_of(traces)}
    assert rows["two letters"]["ph"] == "ab"
    assert json.loads(rows["two letters"]["args"]) == {"a": "é😀"}
    assert (rows["a number"]["ph"], rows["a number"]["start_ns"]) == (
        "C",
        TIME_BASE_US * 1000 - 5000,
    )
    huge = rows["huge"]
    assert [huge[name] for name in ("id", "dur_ns", "args")] == [0, -1, ""]
    # Beyond all times: the last of them, that none may be counted on.
    assert huge["start_ns"] == 4_600_000_000_000_000_000 + TIME_BASE_US * 1000
    assert traces.notes == (f"{path}: 3 lines without an event",)


def test_columns_are_chosen(directory: Path) -> None:
    traces = open_traces([directory])
    (batch, *_) = traces.batches(["dur_ns", "cat"])
    assert list(batch) == ["dur_ns", "cat"]
    with pytest.raises(ValueError, match="no column is called 'duration'; there are: file, ph"):
        traces.batches(["duration"])
    with pytest.raises(ValueError, match="no column is named"):
        traces.batches([])
    with pytest.raises(ValueError, match="0 rows"):
        traces.batches(rows=0)


def test_a_relation_is_asked_in_sql(directory: Path) -> None:
    traces = open_traces([directory])
    with traces.relation(["file", "ph", "dur_ns"]) as events:
        found = events.filter("ph = 'X'").aggregate("file, count(*), sum(dur_ns)", "file")
        assert sorted(found.fetchall()) == [(at, 4, 2855 if at < 3 else 2000) for at in range(4)]


def test_numbers_at_the_edges_keep_their_digits(tmp_path: Path) -> None:
    trace = TraceLines()
    trace.add(
        '{"id":18446744073709551615,"name":"flow","cat":"flow","pid":4294967295,"tid":1,'
        '"ts":3999999999999.999,"ph":"s"}'
    )
    trace.add(
        '{"id":1,"name":"x","cat":"c","pid":1,"tid":1,"ts":0.001,"dur":99999999999999999.999,'
        '"ph":"X"}'
    )
    rows = rows_of(open_traces([trace.write(tmp_path / "t.pfw")]))
    flow, span = sorted((row for row in rows if row["ph"] != "M"), key=lambda row: str(row["name"]))
    assert (flow["id"], flow["pid"]) == (2**64 - 1, 2**32 - 1)
    assert flow["start_ns"] == TIME_BASE_US * 1000 + 3_999_999_999_999_999
    assert span["start_ns"] == TIME_BASE_US * 1000 + 1
    # Beyond 64 bits of nanoseconds there is no number.
    assert span["dur_ns"] == -1


def cut(path: Path, missing: int) -> Path:
    path.write_bytes(path.read_bytes()[:-missing])
    return path


def followed(path: Path) -> Path:
    """A file with something behind its last block that is no block."""
    path.write_bytes(path.read_bytes() + bytes(range(1, 200)))
    return path


def miscounted(path: Path) -> Path:
    """A file whose last gzip block has another checksum than its text."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + bytes(4) + whole[-4:])
    return path


@pytest.mark.parametrize("name", NAMES[1:])
def test_how_a_file_ends_is_told(tmp_path: Path, name: str) -> None:
    trace = small_trace()

    def state(path: Path) -> str:
        (found,) = open_traces([path])
        return found.end.state

    assert state(trace.write(tmp_path / "whole" / name)) == "complete"
    assert state(cut(trace.write(tmp_path / "cut" / name), 3)) == "cut off"
    assert state(followed(trace.write(tmp_path / "behind" / name))) == "damaged"
    if name.endswith(".gz"):
        assert state(miscounted(trace.write(tmp_path / "within" / name))) == "damaged"
    trace.lines.pop()
    assert state(trace.write(tmp_path / "running" / name)) == "cut off"
    trace.add("]")
    assert state(trace.write(tmp_path / "foreign" / name)) == "complete"
    empty = tmp_path / name
    empty.touch()
    assert state(empty) == "cut off"


@pytest.mark.parametrize("name", NAMES)
def test_a_torn_file_is_read_as_far_as_it_goes_and_that_is_said(tmp_path: Path, name: str) -> None:
    cut(small_trace().write(tmp_path / name), 10)
    small_trace(300).write(tmp_path / "z.pfw")
    traces = open_traces([tmp_path])
    for ask in range(2):
        if ask:
            with traces.relation() as events:
                count = len(events.fetchall())
        else:
            count = len(rows_of(traces))
        assert 16 < count < 34
        (note,) = traces.notes
        assert note.startswith(f"{tmp_path / name}: torn: ")


def test_numbered_phases_and_strange_ones_are_told(tmp_path: Path) -> None:
    trace = TraceLines()
    head = f'"pid":{trace.pid},"tid":1,"ts":5.001,"dur":2.000'
    for ph in ("1", '"1"', '"?!"', '"X"'):
        trace.add(f'{{"id":1,"name":"forward","cat":"compute",{head},"ph":{ph},"args":[]}}')
    (columns,) = event_columns(open_traces([trace.write(tmp_path / "t.pfw")]))
    timed = columns.start_ns >= 0
    assert bytes(sorted(columns.ph[timed].tolist())) == b"?XXX"
    assert set(columns.start_ns[timed].tolist()) == {TIME_BASE_US * 1000 + 5001}
    assert columns.args(int(timed.argmax())) == {}


def test_a_column_is_an_array_without_a_copy_and_outlives_what_it_came_from() -> None:
    noise = random.Random(3)
    trace = TraceLines()
    for number in range(500):
        trace.span(f"n{number % 7}", "compute", number * 1000, noise.randrange(900), step=number)
    scanner = EventScanner(1 << 20)
    block = scanner.scan(trace.text)
    kinds = {
        "ph": "u1",
        "label": "u4",
        "id": "u8",
        "parent": "u8",
        "pid": "i8",
        "start_ns": "i8",
        "dur_ns": "i8",
    }
    arrays = {name: np.asarray(getattr(block, name)) for name in kinds}
    assert {name: array.dtype for name, array in arrays.items()} == {
        name: np.dtype(kind) for name, kind in kinds.items()
    }
    address = arrays["dur_ns"].__array_interface__["data"]
    assert np.asarray(block.dur_ns).__array_interface__["data"] == address
    assert not arrays["dur_ns"].flags.writeable
    total = int(arrays["dur_ns"][arrays["ph"] == ord("X")].sum())
    del block, scanner
    gc.collect()
    assert int(arrays["dur_ns"][arrays["ph"] == ord("X")].sum()) == total > 0


def test_names_have_one_number_in_all_blocks_and_no_more_room_than_was_given() -> None:
    scanner = EventScanner(4000)
    first = scanner.scan(b'{"name":"a","cat":"b","ph":"i"}\n')
    again = scanner.scan(b'{"cat":"b","name":"\\u0061","ph":"X","dur":1}\n')
    assert list(first.label) == list(again.label) == [0]
    assert scanner.labels(0) == [("b", "a")]
    assert scanner.labels(1) == []
    many = b"".join(b'{"name":"%d","ph":"i"}\n' % number for number in range(1000))
    with pytest.raises(OverflowError, match="more names"):
        scanner.scan(many)
    assert scanner.scan(b"").rows == 0


def test_what_is_no_text_of_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="no end"):
        EventScanner(100).scan(b"{}")
    with pytest.raises(ValueError, match="codec"):
        EventScanner(100).read_block(0, "lz4", 0, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        EventScanner(100).read_block(-1, "gzip", 0, 1)
    with pytest.raises(ValueError, match="at least one"):
        EventScanner(0)


def test_a_table_of_events_is_read_by_one_at_a_time_and_taken_once(tmp_path: Path) -> None:
    trace = TraceLines()
    for number in range(30_000):
        trace.span(f"n{number % 7}", "compute", number * 1000, 900, step=number)
    path = trace.write(tmp_path / "t.pfw.gz")
    letters = bytes(range(256))
    wanted = (("step",), (), (), 0)

    def new() -> EventTable:
        table = EventTable(EventScanner(1 << 20), letters, (wanted,))
        table.learn((b"\1" * 50,))
        return table

    refused: set[str] = set()
    with path.open("rb") as file, ThreadPoolExecutor(1) as pool:
        for _ in range(100):
            table = new()
            reading = pool.submit(
                table.read_blocks, file.fileno(), "gzip", 0, path.stat().st_size, 0, 2**63
            )
            while not reading.done():
                for ask in (lambda: table.columns(True), lambda: table.members(True)):
                    try:
                        ask()
                    except RuntimeError as error:
                        refused.add(str(error))
            reading.result()
            if refused:
                break
    assert refused == {"another thread reads by this object"}
    assert table.rows > 30_000
    kept = [np.asarray(column).tolist() for column, _ in table.columns(True)]
    assert [np.asarray(column).tolist() for column, _ in table.columns(False)] == kept
    (count, *_) = table.members(False)[0]
    assert count == table.rows
    for gone in (
        lambda: table.columns(True),
        lambda: table.members(True),
        lambda: table.cut(1),
        lambda: table.learn((b"",)),
        lambda: table.read_blocks(0, "gzip", 0, 1, 0, 2**63),
    ):
        with pytest.raises(RuntimeError, match="was taken"):
            gone()
    for wrong in (1, (), ((), ())):
        with pytest.raises(TypeError):
            EventTable(EventScanner(100), letters, (wrong,))  # type: ignore[arg-type]


def test_a_pattern_passes_over_what_lies_beside_traces(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t-host7-1.pfw.gz", 1)
    beside = [
        tmp_path / "t-host7-1.spool-at",
        tmp_path / "t-host7-1.dfindex",
        tmp_path / "dftrace-0123456789abcdef-1-host7-2.spool",
    ]
    profile = tmp_path / "t-host7-1.profile-0.pt.trace.json"
    for file in (*beside, profile):
        file.write_text("of no trace")
    assert [file.path for file in open_traces([tmp_path / "*host7*"])] == [path]
    # A shell's own patterns give all of them by name.
    assert [file.path for file in open_traces([path, *beside])] == [path]
    for given in ([tmp_path / "*.dfindex"], beside):
        with pytest.raises(TraceError, match="not a trace file, but one that lies beside a trace"):
            open_traces(given)
    # By a pattern of its own a profile is read.
    with pytest.raises(TraceError, match="profile-0"):
        open_traces([tmp_path / "*.profile-*"])
