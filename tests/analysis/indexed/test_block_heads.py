"""Each block says what it holds, whoever wrote it, and all readers pass over that."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest
import zstandard
from analysis.indexed.heads import check_blocks
from conftest import RunScript, Traced

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.analysis.summary.figures import summarise
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
    for tool in filter(shutil.which, ("zcat", "pigz")):
        command = [tool, *(["-dc"] if tool == "pigz" else []), str(path)]
        assert subprocess.run(command, capture_output=True, check=True).stdout == text
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
