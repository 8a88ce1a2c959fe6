"""`validate` tells each difference between an index, or the head of a block, and the lines."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from analysis.indexed.heads import Block, blocks_of
from analysis.indexed.test_index_line import train
from conftest import trace_files

import dftrace_ai
from dftrace_ai.analysis.validating.validate import validate_traces

Args = dict[str, Any]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Block]]:
    folder = tmp_path_factory.mktemp("recorded")
    with dftrace_ai.tracing(log_file=folder / "t", write_buffer_bytes=64 * 1024):
        train(10_000)
    (path,) = trace_files(folder)
    return path, blocks_of(path)


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
