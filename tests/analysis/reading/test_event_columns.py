"""The events of a file as columns say what its lines say, and lie in memory once."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import numpy as np
import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace

from dftrace_ai._reader import EventScanner
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.event_columns import event_columns


@pytest.mark.parametrize("suffix", [".pfw", ".pfw.gz", ".pfw.zst"])
def test_every_line_is_a_row(tmp_path: Path, suffix: str) -> None:
    for pid in (1, 2):
        small_trace(pid).write(tmp_path / f"t-{pid}{suffix}")
    traces = open_traces([tmp_path])
    files = list(event_columns(traces))
    assert [str(columns.trace) for columns in files] == [str(trace) for trace in traces]
    for columns in files:
        rows = sorted(
            (
                chr(columns.ph[row]),
                *columns.labels[columns.label[row]],
                int(columns.id[row]),
                int(columns.tid[row]),
                int(columns.dur_ns[row]),
                str(columns.args(row)),
            )
            for row in range(len(columns))
        )
        lines = sorted(
            (
                event["ph"],
                event.get("cat", ""),
                event["name"],
                event.get("id", 0),
                event["tid"],
                round(event["dur"] * 1000) if "dur" in event else -1,
                str(event.get("args", {})),
            )
            for _, event in columns.trace.events()
        )
        assert rows == lines
        assert set(columns.pid.tolist()) == {columns.trace.header.pid}


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


@pytest.mark.parametrize("suffix", [".pfw", ".pfw.gz", ".pfw.zst"])
def test_a_file_is_read_as_far_as_it_goes(tmp_path: Path, suffix: str) -> None:
    trace = small_trace()
    for number in range(300):
        trace.instant(f"n{number % 7}", 10 + number, step=number)
    whole = trace.write(tmp_path / f"t{suffix}", 50).read_bytes()
    for share in (0.3, 0.7, 0.99):
        path = tmp_path / f"cut{suffix}"
        path.write_bytes(whole[: int(len(whole) * share)])
        traces = open_traces([path])
        steps = [
            event["args"]["step"]
            for _, event in traces.files[0].events()
            if event["ph"] == "i" and "step" in event["args"]
        ]
        rows = [
            columns.args(row).get("step")
            for columns in event_columns(traces)  # nothing of the first block of zstd, if it is cut
            for row in (columns.ph == ord("i")).nonzero()[0]
        ]
        assert sorted(step for step in rows if step is not None) == steps
        assert len(traces.notes) == 1
        assert f"{path}: torn: " in traces.notes[0]


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
