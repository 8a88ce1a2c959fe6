"""Programs of others open files with index lines, and read every event of them."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest
from analysis.indexed.heads import blocks_of
from analysis.indexed.test_block_heads import number_by_duckdb
from analysis.indexed.test_index_line import train
from analysis.reading.test_dftracer_readers import run
from conftest import trace_files
from perfetto.engine import query

import dftrace_ai
from dftrace_ai.analysis.summary.figures import Summary, summarise

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
