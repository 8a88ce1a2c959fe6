"""Each block says what it holds, all readers pass over that, and `validate` tells each difference from the lines."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import zstandard
from analysis.indexed.heads import Block, blocks_of, check_blocks
from analysis.indexed.test_index_line import train
from analysis.reading.test_dftracer_readers import run
from conftest import RunScript, Traced, trace_files
from perfetto.engine import query

import dftrace_ai
from dftrace_ai import _reader, ai
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.validating import validate_traces


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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Block]]:
    folder = tmp_path_factory.mktemp("recorded")
    with dftrace_ai.tracing(log_file=folder / "t", write_buffer_bytes=64 * 1024):
        train(10_000)
    (path,) = trace_files(folder)
    blocks = blocks_of(path)
    assert blocks[-2].kind == 1
    return path, blocks


@pytest.mark.parametrize("command", [["zcat"], ["gzip", "-dc"], ["pigz", "-dc"]], ids=" ".join)
def test_unpackers(recorded: tuple[Path, list[Block]], command: list[str]) -> None:
    path, blocks = recorded
    text = b"".join(block.text for block in blocks)
    done = subprocess.run([*command, str(path)], capture_output=True, check=True)
    assert done.stdout == text
    assert done.stderr == b""
    assert gzip.decompress(path.read_bytes()) == text


def test_other_readers(recorded: tuple[Path, list[Block]]) -> None:
    path, _ = recorded
    found = summarise([path])
    assert number_by_duckdb(path) == found.events
    answer = query(path, "select count(*) as n from slice")
    assert answer.clean
    others = sum(row.count for row in found.others if row.kind == "instant")
    assert answer.rows()[0]["n"] == sum(row.count for row in found.spans) + others
    assert int(run("dftracer_event_count", path.parent).split()[-1]) == found.events


Args = dict[str, Any]


def packed(kind: int, text: bytes, lines: int, first: int, last: int, **said: int) -> bytes:
    """A block as the recorder writes it, whose head says what is given."""
    body = gzip.compress(text, mtime=0)[10:]
    total = said.get("packed", 46 + len(body))
    plain = said.get("plain", len(text))
    facts = struct.pack("<BBIIIqq", 1, kind, total, plain, lines, first, last)
    head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H", 34) + b"DF" + struct.pack("<H", 30)
    return head + facts + body


def with_index(blocks: list[Block], at: int, text: bytes) -> bytes:
    """The file with another text in one of its blocks."""
    out = b""
    for number, block in enumerate(blocks):
        line = text if number == at else block.text
        out += packed(block.kind, line, block.lines, block.first_ns, block.last_ns)
    return out


def row(args: Args, name: str) -> Args:
    return next(of for of in args["spans"] if of["name"] == name)


def plus(name: str, member: str) -> Callable[[Args], None]:
    def change(args: Args) -> None:
        row(args, name)[member] += 1

    return change


def another_bucket(args: Args) -> None:
    numbers = row(args, "forward")["buckets"]
    numbers[1] += 1
    numbers[3] -= 1


def another_duration(args: Args) -> None:
    row(args, "data.io.read")["exact"][0] += 1


def a_moved_track(args: Args) -> None:
    args["tracks"][0]["spans"][-2] += 1


PLANTED: dict[str, Callable[[Args], object]] = {
    "count 10001 of spans compute forward, the lines before it 10000": plus("forward", "count"),
    "sum_ns": plus("backward", "sum_ns"),
    "self_ns": plus("forward", "self_ns"),
    "min_ns": plus("forward", "min_ns"),
    "max_ns": plus("backward", "max_ns"),
    "has other durations of spans compute forward": another_bucket,
    "has other durations of spans data data.io.read": another_duration,
    "has no spans compute forward": lambda args: args["spans"].remove(row(args, "forward")),
    "has spans compute forwards, the lines": lambda args: args["spans"].append(
        row(args, "forward") | {"name": "forwards"}
    ),
    "has a name twice": lambda args: args["spans"].append(row(args, "forward")),
    "says count 3 of C counter loss": lambda args: args["others"][0].update(count=3),
    "says count 0 of": lambda args: args["others"].pop(),
    "says of tid": a_moved_track,
    "says lines": lambda args: args.update(lines=args["lines"] + 1),
    "says bytes": lambda args: args.update(bytes=args["bytes"] - 1),
    "says first_ns": lambda args: args.update(first_ns=args["first_ns"] - 1),
    "says last_ns": lambda args: args.update(last_ns=args["last_ns"] + 1),
    "its times cannot be": lambda args: args.pop("last_ns"),
    "says part 2, there are 0": lambda args: args.update(part=2),
}


def test_a_difference_of_any_figure_is_a_fault(recorded: tuple[Path, list[Block]]) -> None:
    path, blocks = recorded
    at = [number for number, block in enumerate(blocks) if block.kind == 1][-1]
    changed = path.parent / "changed" / path.name
    changed.parent.mkdir()
    assert validate_traces([path]).fault_count == 0
    missed = []
    for what, change in PLANTED.items():
        line = json.loads(blocks[at].text)
        change(line["args"])
        text = json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        changed.write_bytes(with_index(blocks, at, text))
        faults = validate_traces([changed]).first_faults(20)
        number = sum(block.lines for block in blocks[:at]) + 1
        if not any(what in fault.message and fault.line == number for fault in faults):
            missed.append((what, faults))
    assert missed == []


def test_a_head_that_is_not_what_its_block_is(recorded: tuple[Path, list[Block]]) -> None:
    path, blocks = recorded
    at = 5
    assert blocks[at].kind == 0
    block = blocks[at]
    ahead = b"".join(packed(*facts(each)) for each in blocks[:at])
    behind = b"".join(packed(*facts(each)) for each in blocks[at + 1 :])
    kind, text, lines, first, last = facts(block)
    planted = {
        "packed bytes": packed(kind, text, lines, first, last, packed=100),
        "plain bytes": packed(kind, text, lines, first, last, plain=len(text) + 1),
        "lines": packed(kind, text, lines - 1, first, last),
        "first time (ns)": packed(kind, text, lines, first + 1, last),
        "last time (ns)": packed(kind, text, lines, first, last - 1),
        "an index line and nothing else": packed(1, text, lines, first, last),
    }
    changed = path.parent / "heads" / path.name
    changed.parent.mkdir()
    changed.write_bytes(ahead + packed(kind, text, lines, first, last) + behind)
    assert validate_traces([changed]).fault_count == 0
    for what, bytes_of in planted.items():
        changed.write_bytes(ahead + bytes_of + behind)
        (fault,) = validate_traces([changed]).first_faults(10)
        assert what in fault.message
        assert fault.line == sum(each.lines for each in blocks[:at]) + 1


def facts(block: Block) -> tuple[int, bytes, int, int, int]:
    return block.kind, block.text, block.lines, block.first_ns, block.last_ns


def test_parts_go_on_where_the_part_before_ends(tmp_path: Path) -> None:
    with dftrace_ai.tracing(
        log_file=tmp_path / "t", write_buffer_bytes=32 * 1024, max_file_bytes=400_000
    ):
        train(60_000)
    paths = trace_files(tmp_path)
    assert len(paths) > 2
    assert any(block.kind == 1 for block in blocks_of(paths[-1]))
    assert validate_traces(paths).fault_count == 0
    # Of one alone it is not known which spans of the part before lie inside of its own.
    assert validate_traces([paths[-1]]).fault_count == 0
    blocks = blocks_of(paths[1])
    at = [number for number, block in enumerate(blocks) if block.kind == 1][-1]
    line = json.loads(blocks[at].text)
    line["args"]["spans"][-1]["self_ns"] -= 1
    text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
    paths[1].write_bytes(with_index(blocks, at, text))
    (fault,) = validate_traces(paths).first_faults(10)
    assert "self_ns" in fault.message
    assert validate_traces([paths[1]]).fault_count == 0
