"""The columns that other programs take by Arrow's interface: what the lines say, and no copy of it."""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from analysis.trace_lines import TraceLines, small_trace

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.scanning import ArrowBatch
from dftrace_ai.analysis.reading.trace_set import COLUMNS
from dftrace_ai.errors import TraceError

TYPES = {
    "file": "uint32",
    "ph": "dictionary<values=string, indices=uint8, ordered=0>",
    "cat": "dictionary<values=string, indices=uint32, ordered=0>",
    "name": "dictionary<values=string, indices=uint32, ordered=0>",
    "id": "uint64",
    **dict.fromkeys(("pid", "tid", "start_ns", "dur_ns"), "int64"),
    "args": "string_view",
}
ODD_LINES = (
    '{"name":"two letters","ph":"ab","pid":1,"tid":2,"args":{"a":"\\u00e9\\ud83d\\ude00"}}',
    '{"name":"a number","cat":"compute","ph":2,"ts":-5,"args":{"loss":1e4}},',
    '{"name":"a number as a text","ph":"1","ts":7,"dur":8}',
    '{"name":"huge","ph":"X","ts":1e300,"dur":1e300,"id":-1,"args":[1]}',
    '{"name":"","ph":"i","args":{}}',
    '{"name":"é\\u0000","ph":"cd","args":{"exact":12}}',
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    odd = small_trace(100)
    for line in ODD_LINES:
        odd.add(line)
    odd.write(tmp_path / "a.pfw")
    small_trace(101).write(tmp_path / "b.pfw.gz")
    small_trace(102, timestamps="epoch_us").write(tmp_path / "c.pfw.zst")
    return tmp_path


def rows_of(directory: Path) -> list[tuple[Any, ...]]:
    """The events as NumPy has them."""
    batches = open_traces([directory]).batches()
    return [
        row for batch in batches for row in zip(*(values.tolist() for values in batch.values()))
    ]


def asked(events: object, query: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers of them."""
    with duckdb.connect() as connection:
        connection.register("events", events)
        return connection.execute(query).fetchall()


def big_trace(folder: Path, blocks: int = 8, rows: int = 400) -> Path:
    noise = random.Random(5)
    trace = TraceLines()
    for number in range(blocks * rows):
        trace.span(
            f"n{number // 300}", f"c{number % 3}", number * 1000, noise.randrange(900), step=number
        )
    return trace.write(folder / "big.pfw.gz", rows)


def test_pyarrow_has_every_event_as_numpy_has(directory: Path) -> None:
    traces = open_traces([directory])
    events = traces.arrow()
    assert {field.name: str(field.type) for field in pa.schema(events)} == TYPES
    assert not any(field.nullable for field in pa.schema(events))
    table = pa.table(events)
    table.validate(full=True)
    assert list(zip(*table.to_pydict().values())) == rows_of(directory)
    assert traces.notes == ()
    # A batch by itself, too, and a stream as often as somebody asks.
    batches = [pa.record_batch(batch) for batch in traces.arrow()]
    assert pa.Table.from_batches(batches) == table == pa.table(events)
    assert sum(map(len, traces.arrow())) == table.num_rows


def test_polars_and_duckdb_take_the_same(directory: Path) -> None:
    rows = rows_of(directory)
    frame = pl.DataFrame(open_traces([directory]).arrow())
    assert frame.rows() == rows
    assert asked(open_traces([directory]).arrow(), "select * from events") == rows
    counts = "select cat, count(*) from events group by cat order by cat"
    groups = frame.group_by("cat").len().with_columns(pl.col("cat").cast(str)).sort("cat")
    assert asked(open_traces([directory]).arrow(), counts) == groups.rows()


def test_a_category_of_many_names_is_one_text(tmp_path: Path) -> None:
    """Who groups by numbers gets a group for each text."""
    table = pa.table(open_traces([big_trace(tmp_path)]).arrow()).unify_dictionaries()
    (texts, *others) = [chunk.dictionary.to_pylist() for chunk in table["cat"].chunks]
    assert sorted(texts) == sorted(set(texts)) == ["c0", "c1", "c2", "dftrace"]
    assert all(other == texts for other in others)
    groups = table.group_by("cat").aggregate([("id", "count")]).to_pylist()
    assert {group["cat"]: group["id_count"] for group in groups}["c1"] == 8 * 400 // 3 + 1


def addresses(column: pa.Array) -> list[int]:
    return [buffer.address for buffer in column.buffers() if buffer is not None]


def test_nothing_is_copied(tmp_path: Path) -> None:
    for batch in open_traces([big_trace(tmp_path)]).arrow():
        taken = pa.record_batch(batch)
        block = batch.block
        for name in ("id", "pid", "tid", "start_ns", "dur_ns"):
            assert addresses(taken[name]) == [np.asarray(getattr(block, name)).ctypes.data], name
        assert np.asarray(block.ph).ctypes.data in addresses(taken["ph"].indices)
        # The views are made; what they show lies in the text of the block.
        assert addresses(taken["args"])[-1] == np.asarray(block.text).ctypes.data


def test_columns_live_as_long_as_somebody_holds_them(tmp_path: Path) -> None:
    """Released in any order, after all else that knew of them."""
    path = big_trace(tmp_path, blocks=2)
    expected = pa.table(open_traces([path]).arrow()).to_pydict()
    for order in itertools.islice(itertools.permutations(range(4)), 0, None, 8):
        batches = list(open_traces([path]).arrow(["name", "dur_ns", "args", "cat"]))
        held: list[Any] = [pa.record_batch(batches[0])[number] for number in range(4)]
        names = ["name", "dur_ns", "args", "cat"]
        del batches
        for number in order:
            gc.collect()
            column, held[number] = held[number], None
            column.validate(full=True)
            assert column.to_pylist() == expected[names[number]][: len(column)]
            del column


def test_capsules_that_nobody_takes_are_given_back(tmp_path: Path) -> None:
    path = big_trace(tmp_path, blocks=1)
    events = open_traces([path]).arrow()
    batch = next(iter(events))

    def used_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def leave() -> None:
        for _ in range(300):
            batch.__arrow_c_schema__(), batch.__arrow_c_array__(), events.__arrow_c_stream__()

    leave()
    before = used_bytes()
    for _ in range(10):
        leave()
    # Each array has 16 bytes of its own for each of 400 rows, and more.
    assert used_bytes() - before < 3000 * 400 * 16 / 2


def test_threads_take_and_let_go_of_the_same_batches(tmp_path: Path) -> None:
    path = big_trace(tmp_path)
    expected = pa.table(open_traces([path]).arrow())
    batches = list(open_traces([path]).arrow())
    wrong: list[object] = []

    def take(seed: int) -> None:
        noise = random.Random(seed)
        held = {}
        for _ in range(60):
            number = noise.randrange(len(batches))
            held[noise.randrange(4)] = number, pa.record_batch(batches[number])
            where, taken = held[noise.choice(list(held))]
            rows = sum(map(len, batches[:where]))
            if taken["args"].to_pylist() != expected["args"][rows : rows + len(taken)].to_pylist():
                wrong.append(where)

    threads = [threading.Thread(target=take, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    # DuckDB asks a stream from threads of its own.
    query = "select name, sum(dur_ns) from events group by name order by name"
    assert asked(open_traces([path]).arrow(), query) == asked(expected, query)


def test_only_the_columns_that_are_asked_for(directory: Path) -> None:
    traces = open_traces([directory])
    assert pa.table(traces.arrow(["dur_ns", "name"])).column_names == ["dur_ns", "name"]
    with pytest.raises(ValueError, match="no column is called 'duration'"):
        traces.arrow(["duration"])
    assert COLUMNS == tuple(TYPES)


def test_more_phases_than_letters_are_left(tmp_path: Path) -> None:
    """Nobody writes so many; they are shown as what is not known, and nothing breaks."""
    trace = small_trace()
    for number in range(200):
        trace.add(json.dumps({"name": "n", "ph": f"phase {number}"}))
    phases = pa.table(open_traces([trace.write(tmp_path / "t.pfw")]).arrow())["ph"].to_pylist()
    assert phases[-200:] == [f"phase {number}" if number < 128 else "?" for number in range(200)]


def test_a_file_that_vanishes_is_the_error_of_whoever_reads(tmp_path: Path) -> None:
    traces = open_traces([big_trace(tmp_path)])
    events = traces.arrow()
    traces.files[0].path.unlink()
    with pytest.raises(OSError, match=r"big\.pfw\.gz: cannot be read"):
        pa.table(events)
    with pytest.raises(TraceError, match="cannot be read"):
        list(events)


def test_what_cannot_be_read_is_told_after_the_last_event(tmp_path: Path) -> None:
    path = tmp_path / "torn.pfw"
    path.write_bytes(small_trace().text + b'{"cut')
    traces = open_traces([path])
    reader = pa.RecordBatchReader.from_stream(traces.arrow())
    assert traces.notes == ()
    assert reader.read_all().num_rows == len(small_trace().lines) - 1
    assert len(traces.notes) == 1
    assert "torn" in traces.notes[0]


def test_a_stream_that_is_not_read_to_its_end_closes_its_file(tmp_path: Path) -> None:
    reader = pa.RecordBatchReader.from_stream(open_traces([big_trace(tmp_path)]).arrow())
    reader.read_next_batch()
    open_files = len(os.listdir("/proc/self/fd"))
    reader.close()
    del reader
    assert len(os.listdir("/proc/self/fd")) == open_files - 1


def test_what_is_no_block_or_no_column_is_refused(tmp_path: Path) -> None:
    from dftrace_ai import _reader

    batch = next(iter(open_traces([big_trace(tmp_path)]).arrow()))
    assert isinstance(batch, ArrowBatch)
    with pytest.raises(TypeError, match="EventBlock"):
        _reader.arrow_array("x", 0, ("name",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no column is called 'x'"):
        _reader.arrow_schema(("x",))
    with pytest.raises(TypeError, match="iterator"):
        _reader.arrow_stream([(batch.block, 0)], ("name",))  # type: ignore[arg-type]
    broken = iter([(batch.block, 0), ("x", 0)])
    wrong = _reader.arrow_stream(broken, ("name",))
    reader = pa.RecordBatchReader._import_from_c_capsule(wrong)
    assert reader.read_next_batch().num_rows == len(batch)
    with pytest.raises(OSError, match="EventBlock"):
        reader.read_next_batch()
