"""The columns that the native reader gives are what the lines say."""

from __future__ import annotations

import gc
import json
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace

from dftrace_ai._reader import EventBlock, EventScanner

BASE_NS = TIME_BASE_US * 1000


def rows(scanner: EventScanner, block: EventBlock) -> list[tuple]:
    labels = scanner.labels(0)
    columns = (block.ph, block.label, block.id, block.pid, block.tid, block.start_ns, block.dur_ns)
    return [
        (
            block.phases.get(row) or chr(ph),
            *labels[label],
            *numbers,
            json.loads(block.args(row) or "null"),
        )
        for row, (ph, label, *numbers) in enumerate(zip(*columns))
    ]


def nanoseconds(micros: float | None, base: int) -> int:
    return -1 if micros is None else round(micros * 1000) + base


def expected(lines: list[str]) -> list[tuple]:
    found = []
    for line in lines[1:]:
        event = json.loads(line)
        found.append(
            (
                *(event.get(key, "") for key in ("ph", "cat", "name")),
                *(event.get(key, 0) for key in ("id", "pid", "tid")),
                nanoseconds(event.get("ts"), BASE_NS),
                nanoseconds(event.get("dur") if event["ph"] == "X" else None, 0),
                event.get("args"),
            )
        )
    return found


def test_every_line_with_a_phase_and_a_name_is_a_row() -> None:
    trace = small_trace()
    trace.add('{"dur":2.5,"ph":"odd","name":"\\u0061","args":{}}')
    trace.add('{"ph":"n","name":"no time"}')
    scanner = EventScanner(1 << 20)
    block = scanner.scan(trace.text, BASE_NS)
    assert rows(scanner, block) == expected(trace.lines)
    assert (block.lines, block.unreadable, block.rows) == (
        len(trace.lines),
        0,
        len(trace.lines) - 1,
    )
    assert block.args(block.rows - 2) == "{}"
    assert block.args(block.rows - 1) == ""
    with pytest.raises(IndexError):
        block.args(block.rows)


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


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_blocks_of_a_file_come_one_by_one(tmp_path: Path, suffix: str) -> None:
    trace = small_trace()
    path = trace.write(tmp_path / f"t.pfw{suffix}", lines_a_block=4)
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(path.read_bytes()[:20])
    scanner = EventScanner(1 << 20)
    codec = {".gz": "gzip", ".zst": "zstd"}[suffix]
    found, at, blocks = [], 0, 0
    with path.open("rb") as file:
        end = os.fstat(file.fileno()).st_size
        while read := scanner.read_block(file.fileno(), codec, at, end, BASE_NS):
            block, size = read
            found += rows(scanner, block)
            at += size
            blocks += 1
    assert at == whole  # and not what is torn behind it
    assert blocks == -(-len(trace.lines) // 4)
    assert found == expected(trace.lines)


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


def test_threads_may_read_side_by_side_each_with_its_own_scanner() -> None:
    text = small_trace().text * 50
    counts: list[int] = []

    def read() -> None:
        scanner = EventScanner(1 << 20)
        counts.append(sum(scanner.scan(text).rows for _ in range(20)))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [20 * 50 * (text.count(b"\n") // 50 - 1)] * 4
