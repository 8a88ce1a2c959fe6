"""Each block says what it holds, whoever wrote it, all readers pass over that, and index lines can be."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
import zstandard
from analysis.indexed.heads import blocks_of, check_blocks
from analysis.indexed.test_index_line import train
from analysis.reading.test_dftracer_readers import run
from conftest import RunScript, Traced, trace_files
from perfetto.engine import query

import dftrace_ai
from dftrace_ai import _reader, ai
from dftrace_ai.analysis.summary.table import Summary, summarise
from dftrace_ai.analysis.validating.validate import validate_traces


def some_events(count: int) -> None:
    for step in ai.dataloader.fetch.iter(range(count)):
        with ai.compute.forward as span:
            span.update(step=step)
        ai.counter("loss", {"train": step / 3})
    ai.instant("done")


def number_by_duckdb(path: Path) -> int:
    found = duckdb.sql(
        f"SELECT count(*) FROM read_json('{path}', format = 'newline_delimited', "
        "ignore_errors = true, columns = {name: 'VARCHAR', ph: 'VARCHAR'}) WHERE ph <> 'M'"
    ).fetchall()
    return int(found[0][0])


@pytest.mark.parametrize("timestamps", ["relative", "epoch_us"])
def test_blocks_of_gzip_say_what_they_hold(traced: Traced, timestamps: str) -> None:
    with traced(write_buffer_bytes=4096, timestamps=timestamps) as rec:
        some_events(200)
        ai.compute.backward.start()
    path = rec.trace.path
    blocks = check_blocks(path)
    text = b"".join(block.text for block in blocks)
    assert len(blocks) > 20
    assert gzip.decompress(path.read_bytes()) == text
    assert number_by_duckdb(path) == summarise([path]).events == 802


def test_frames_of_zstd_say_what_they_hold(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", compression="zstd", write_buffer_bytes=4096):
        some_events(200)
    (path,) = tmp_path.glob("*.zst")
    blocks = check_blocks(path)
    text = b"".join(block.text for block in blocks)
    reader = zstandard.ZstdDecompressor().stream_reader(
        io.BytesIO(path.read_bytes()), read_across_frames=True
    )
    assert reader.read() == text
    if shutil.which("zstd"):
        done = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True)
        assert done.stdout == text
    assert number_by_duckdb(path) == summarise([path]).events == 801


def test_parts_children_and_the_dead_have_them_too(run_script: RunScript) -> None:
    done = run_script(
        """
        import os, signal
        import dftrace_ai
        from dftrace_ai import ai

        def work(count):
            for step in range(count):
                with ai.compute.forward:
                    pass

        dftrace_ai.initialize(write_buffer_bytes=4096, max_file_bytes=65536)
        work(16_000)
        child = os.fork()
        if child == 0:
            work(100)
            ai.compute.backward.start()
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        dftrace_ai.finalize()
        dftrace_ai.initialize()
        ai.pipeline.epoch.start(metadata=True)
        dftrace_ai.finalize()
        """
    )
    assert validate_traces(done.files).fault_count == 0
    assert sum(".part" in path.name for path in done.files) > 2
    for path in done.files:
        check_blocks(path)


EXACT = ("compute", "forward", 2, 30, 25, 10, 20, True, [10, 20])
BUCKETS = ("compute", "backward", 3, 60, 60, 10, 30, False, [10, 1, 9, 1, 9, 1])


def taken(*spans: Any, lines: int = 5, **more: Any) -> bool:
    totals = _reader.Totals(1, 1 << 22)
    return totals.add_known(lines, list(spans), more.get("others", []), more.get("tracks", []))


def test_figures_that_can_be_are_taken() -> None:
    assert taken(EXACT, BUCKETS, others=[("i", "instant", "now", 1)], lines=6)


@pytest.mark.parametrize(
    "change",
    [
        {2: 3},
        {2: 2**60},
        {2: -1},
        {3: 31},
        {4: 31},
        {5: 9},
        {6: 21},
        {5: -10, 8: [-10, 20]},
        {8: [10, 21]},
        {8: [2**63, 20]},
        {8: ["10", 20]},
        {7: False, 8: [10, 1, 8, 1]},
        {7: False, 8: [11, 1, 8, 1]},
        {7: False, 8: [10, 1, 2**40, 1]},
        {7: False, 8: [10, 1, 9, -1]},
    ],
    ids=str,
)
def test_what_cannot_be_is_not(change: dict[int, Any]) -> None:
    row = list(EXACT)
    for at, value in change.items():
        row[at] = value
    assert not taken(tuple(row))


@pytest.mark.parametrize("numbers", [[0, 0], [2, 1, 3, 1, 0], [1, 2, 1, 1, 0], [1, 2, 3, -1, 0]])
def test_tracks_that_cannot_be_are_not(numbers: list[int]) -> None:
    assert taken(EXACT, tracks=[(1, 1, 30, 10, [10, 10, 30, 20, 0])])
    assert not taken(EXACT, tracks=[(1, 1, 2, 1, numbers)])
    assert not taken(EXACT, lines=1)


SLICES = "select count(*) as n from slice"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, Summary]:
    folder = tmp_path_factory.mktemp("indexed")
    with dftrace_ai.tracing(log_file=folder / "t", write_buffer_bytes=64 * 1024):
        train(10_000)
    (path,) = trace_files(folder)
    blocks = blocks_of(path)
    assert blocks[-2].kind == 1
    return path, b"".join(block.text for block in blocks), summarise([path])


@pytest.mark.parametrize("command", [["zcat"], ["gzip", "-dc"], ["pigz", "-dc"]], ids=" ".join)
def test_unpackers(indexed: tuple[Path, bytes, Summary], command: list[str]) -> None:
    path, text, _ = indexed
    done = subprocess.run([*command, str(path)], capture_output=True, check=True)
    assert done.stdout == text
    assert done.stderr == b""
    assert gzip.decompress(path.read_bytes()) == text


def test_duckdb_and_dftracers_reader(indexed: tuple[Path, bytes, Summary]) -> None:
    path, _, found = indexed
    assert number_by_duckdb(path) == found.events
    assert int(run("dftracer_event_count", path.parent).split()[-1]) == found.events


def test_perfetto(indexed: tuple[Path, bytes, Summary]) -> None:
    path, _, found = indexed
    answer = query(path, SLICES)
    assert answer.clean
    others = sum(row.count for row in found.others if row.kind == "instant")
    assert answer.rows()[0]["n"] == sum(row.count for row in found.spans) + others
