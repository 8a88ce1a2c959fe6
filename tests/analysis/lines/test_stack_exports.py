"""Samples of stacks for speedscope and pprof, read back by their own schema and by protobuf."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from analysis.lines.made_stacks import MadeStacks
from analysis.trace_lines import TraceLines
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from safety.commands import invoke

MS = 1_000_000
MAIN = ("main", "train.py", 41)
DECODE = ("Data.décode", "pkg/augment.py", 88)
NORM = ("Tensor.norm", "torch/_tensor.py", 0, True)
STACKS = ([MAIN], [MAIN, DECODE], [MAIN, DECODE], [MAIN, DECODE, NORM], [MAIN])

# Fields of pprof's profile.proto: name, number, type, whether there are several.
INT, UINT, TEXT = 3, 4, 9
PROFILE = {
    "ValueType": [("type", 1, INT, 0), ("unit", 2, INT, 0)],
    "Label": [("key", 1, INT, 0), ("str", 2, INT, 0), ("num", 3, INT, 0)],
    "Sample": [("location_id", 1, UINT, 1), ("value", 2, INT, 1), ("label", 3, "Label", 1)],
    "Line": [("function_id", 1, UINT, 0), ("line", 2, INT, 0)],
    "Location": [("id", 1, UINT, 0), ("line", 4, "Line", 1)],
    "Function": [
        *(("id", 1, UINT, 0), ("name", 2, INT, 0), ("system_name", 3, INT, 0)),
        ("filename", 4, INT, 0),
    ],
    "Profile": [
        *(("sample_type", 1, "ValueType", 1), ("sample", 2, "Sample", 1)),
        *(("location", 4, "Location", 1), ("function", 5, "Function", 1)),
        *(("string_table", 6, TEXT, 1), ("default_sample_type", 14, INT, 0)),
    ],
}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    for rank in range(2):
        trace = TraceLines(100 + rank, rank=rank, world_size=2)
        for tid in (trace.pid, 7):
            stacks = MadeStacks(trace, 0, 100, tid)
            for number, stack in enumerate(STACKS, 1):
                stacks.sample(number * 10 * MS, stack, 5_000)
            stacks.end()
        trace.footer(samples=10)
        trace.write(folder / f"t-a-{trace.pid}.pfw.gz")
    return folder


def converted(job: Path, to: str, out: Path, *more: str, status: int = 0) -> Any:
    done = invoke("convert", job, "--to", to, "--out", out, "--json", *more)
    assert done.status == status, done.err
    return json.loads(done.out)


def pprof_of(data: bytes) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", syntax="proto3")
    for name, fields in PROFILE.items():
        message = file.message_type.add(name=name)
        for called, number, kind, several in fields:
            label = 3 if several else 1
            if isinstance(kind, str):
                message.field.add(
                    name=called, number=number, label=label, type=11, type_name=f".{kind}"
                )
            else:
                message.field.add(name=called, number=number, label=label, type=kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    profile = message_factory.GetMessageClass(pool.FindMessageTypeByName("Profile"))()
    profile.ParseFromString(data)
    return profile


def test_pprof_has_every_stack_with_its_time(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "stacks.pb.gz"
    report = converted(job, "pprof", out)
    assert (report["lines"], report["notes"]) == (20, [])
    profile = pprof_of(gzip.decompress(out.read_bytes()))
    text = list(profile.string_table)
    assert text[0] == ""
    assert [(text[one.type], text[one.unit]) for one in profile.sample_type] == [
        *(("samples", "count"), ("wall", "nanoseconds"), ("cpu", "nanoseconds")),
    ]
    assert text[profile.default_sample_type] == "wall"
    functions = {one.id: (text[one.name], text[one.filename]) for one in profile.function}
    places = {
        one.id: (*functions[one.line[0].function_id], one.line[0].line) for one in profile.location
    }
    found: Counter[Any] = Counter()
    for sample in profile.sample:
        labels = {text[one.key]: text[one.str] or one.num for one in sample.label}
        stack = tuple(places[number] for number in reversed(sample.location_id))
        count, wall, cpu = sample.value
        assert (wall, cpu) == (count * 10 * MS, count * 5 * MS)
        found[labels["rank"], labels["thread"].rpartition(", ")[2], stack] += count
    assert found == Counter(
        (rank, thread, tuple(one[:3] for one in stack))
        for rank in range(2)
        for thread in ("main thread", "thread 7")
        for stack in STACKS
    )


def test_speedscope_has_a_profile_for_each_thread(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "stacks.speedscope.json"
    assert converted(job, "speedscope", out)["lines"] == 20
    told = json.loads(out.read_bytes())
    assert told["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = told["shared"]["frames"]
    assert {"name": "Data.décode", "file": "pkg/augment.py", "line": 88} in frames
    assert {"name": "Tensor.norm", "file": "torch/_tensor.py"} in frames
    assert len(told["profiles"]) == 4
    for profile in told["profiles"]:
        assert (profile["type"], profile["unit"]) == ("sampled", "nanoseconds")
        assert profile["endValue"] == sum(profile["weights"]) == 50 * MS
        # Of one stack that follows itself there is one, with the weight of both.
        assert profile["weights"] == [10 * MS, 20 * MS, 10 * MS, 10 * MS]
        names = [[frames[at]["name"] for at in stack] for stack in profile["samples"]]
        assert names == [[one[0] for one in STACKS[at]] for at in (0, 1, 3, 4)]


@pytest.mark.parametrize("to", ["speedscope", "pprof"])
def test_it_replaces_what_a_conversion_has_written_alone(
    job: Path, tmp_path: Path, to: str
) -> None:
    out = tmp_path / "out"
    converted(job, to, out)
    assert invoke("convert", job, "--to", to, "--out", out).status == 2
    converted(job, to, out, "--force")
    out.write_bytes(b"mine")
    refused = invoke("convert", job, "--to", to, "--out", out, "--force")
    assert (refused.status, out.read_bytes()) == (2, b"mine")


def test_that_there_are_none_is_told(tmp_path: Path) -> None:
    trace = TraceLines(100)
    trace.footer()
    path = trace.write(tmp_path / "t-a-100.pfw")
    report = converted(path, "speedscope", tmp_path / "out", status=1)
    assert report["notes"] == ["there are no samples of stacks; lines_hz has them recorded"]
