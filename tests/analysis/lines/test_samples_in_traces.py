"""Samples of stacks beside spans: every reader knows that they are no events."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from analysis.lines.made_stacks import MadeStacks
from analysis.trace_lines import TIME_BASE_US, TraceLines
from perfetto import engine
from safety.commands import invoke

MS = 1_000_000
MAIN = ("main", "train.py", 41)
DECODE = ("Data.decode", "pkg/augment.py", 88)
NORM = ("Tensor.norm", "torch/_tensor.py", 0, True)
LATER_US = 3_000_000
PERFETTO = (
    "select ts from cpu_profile_stack_sample order by ts",
    "select name, value from stats where severity = 'error' and value > 0",
)


def sampled(folder: Path, pid: int, base_us: int = TIME_BASE_US, samples: int = 120) -> TraceLines:
    """A thread whose samples stand in two chunks and a rest, and each in a span."""
    trace = TraceLines(pid, rank=pid % 100, world_size=2, time_base_us=base_us)
    stacks = MadeStacks(trace, 5 * MS)
    for number in range(samples):
        at = 10 * MS + number * 20 * MS
        trace.span("step", "compute", at - MS, 3 * MS, step=number)
        stacks.sample(at, [MAIN, DECODE, *([NORM] if number % 2 else [])], cpu_us=900)
    stacks.end()
    trace.footer(samples=samples)
    trace.write(folder / f"t-a-{pid}.pfw.gz", 40)
    return trace


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    sampled(folder, 100)
    sampled(folder, 101, TIME_BASE_US + LATER_US)
    return folder


def said(*words: object, status: int = 0) -> Any:
    done = invoke(*map(str, words))
    assert done.status == status, done.err
    return json.loads(done.out)


def test_a_summary_counts_them_as_samples(job: Path) -> None:
    found = said("summary", job, "--json")
    assert found["events"] == 240
    assert [(row["name"], row["count"]) for row in found["spans"]] == [("step", 240)]
    sample = {"kind": "sample", "cat": "stack", "name": "ProfileChunk", "count": 240}
    assert found["others"] == [sample]
    assert not found["warnings"]
    by_rank = said("summary", job, "--json", "--by", "rank")
    assert by_rank["others"] == [sample]
    # Of events that meet a condition none is one.
    chosen = said("summary", job, "--json", "--where", "cat = compute")
    assert (chosen["events"], chosen["chosen_events"], chosen["others"]) == (240, 240, [])


def test_they_are_right_by_the_format(job: Path) -> None:
    found = said("validate", job, "--json")
    assert [file["faults"] for file in found["files"]] == [[], []]
    assert [file["events"] for file in found["files"]] == [120, 120]


def test_an_index_says_what_the_lines_do(job: Path, tmp_path: Path) -> None:
    for file in job.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    before = said("summary", tmp_path, "--json")
    assert invoke("index", tmp_path).status == 0
    after = said("summary", tmp_path, "--json")
    assert [after[name] for name in ("spans", "others", "events")] == [
        before[name] for name in ("spans", "others", "events")
    ]
    assert said("validate", tmp_path, "--json")["files"][0]["faults"] == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"name":"Profile"', '"name":"Profiles"'), "Profiles"),
        (('"parent":1,', '"parent":9,'), "the frame 2 lies in 9, not there"),
        (('"samples":[2,3', '"samples":[2,7'), "a sample of the frame 7, which is not there"),
        (('"samples":[2,3', '"samples":[2,0'), "a sample of the frame 0, which is not there"),
        (('"cut":[0,0', '"cut":[0'), "samples, timeDeltas, cpu and cut are not of one length"),
        (('"samples":[2,3', '"samples":[2,null'), "args.data"),
        (('"scriptId":1', '"scriptId":4'), "args.data"),
        (('"startTime":5000', '"startTime":5000.5'), "args.data"),
    ],
)
def test_what_is_wrong_with_them_is_told(
    change: tuple[str, str], told: str, tmp_path: Path
) -> None:
    trace = sampled(tmp_path, 100)
    at = next(number for number, line in enumerate(trace.lines) if change[0] in line)
    trace.lines[at] = trace.lines[at].replace(*change, 1)
    bad = trace.write(tmp_path / "t-a-100.pfw")
    (tmp_path / "t-a-100.pfw.gz").unlink()
    found = said("validate", bad, "--json", status=1)
    faults = found["files"][0]["faults"]
    assert faults[0]["line"] == at + 1
    assert told in faults[0]["message"]
    # Readers go on without what they cannot read.
    assert said("summary", bad, "--json")["spans"][0]["count"] == 120


@pytest.mark.parametrize("odd", [0.0, 0.5])
def test_whole_numbers_may_be_written_as_fractions(tmp_path: Path, odd: float) -> None:
    """As other writers of JSON have them; what is none is told."""
    path = tmp_path / "t-a-100.pfw.gz"
    sampled(tmp_path, 100)
    plain = said("summary", "--by", "line", path, "--json")
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    for at, line in enumerate(lines):
        if '"ProfileChunk"' not in line:
            continue
        event = json.loads(line.removesuffix(","))
        data = event["args"]["data"]
        profile = data["cpuProfile"]
        for columns, name in ((profile, "samples"), (data, "timeDeltas"), (data, "cpu")):
            columns[name] = [float(value) for value in columns[name]]
        data["cut"] = [bool(value) for value in data["cut"]]
        for node in profile.get("nodes", ()):
            node["id"] = float(node["id"])
        data["cpu"][0] += odd
        lines[at] = json.dumps(event, separators=(",", ":"))
    path.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    if odd:
        assert "3 lines" in invoke("summary", "--by", "line", path, "--json").err
    else:
        assert said("summary", "--by", "line", path, "--json")["lines"] == plain["lines"]


def test_a_second_profile_of_an_id_is_a_fault(tmp_path: Path) -> None:
    trace = TraceLines(100)
    for _ in range(2):
        stacks = MadeStacks(trace, 5 * MS)
        stacks.sample(10 * MS, [MAIN])
        stacks.end()
    trace.footer(samples=3)
    bad = trace.write(tmp_path / "t-a-100.pfw")
    messages = [
        f["message"] for f in said("validate", bad, "--json", status=1)["files"][0]["faults"]
    ]
    assert messages == [
        "a second Profile of id 100, where one is due",
        "the frame 1 stands twice",
        "the closing line says samples 3, the file holds 2",
    ]


def shown(path: Path) -> tuple[list[int], list[Any]]:
    """When Perfetto has samples, and what it complains of."""
    answer = engine.query(path, *PERFETTO)
    assert answer.load_ok
    return [row["ts"] for row in answer.rows(0)], answer.rows(1)


def test_a_merged_trace_has_them_at_their_time(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.pfw"
    said("convert", job, "--to", "perfetto", "-o", out, "--json")
    times, faults = shown(out)
    own = [10 * MS + number * 20 * MS for number in range(120)]
    assert times == sorted([*own, *(at + LATER_US * 1000 for at in own)])
    assert faults == []


def test_a_window_has_its_samples_alone(job: Path, tmp_path: Path) -> None:
    from dftrace_ai.analysis.merging.merged_trace import MergedTrace
    from dftrace_ai.analysis.reading import open_traces
    from dftrace_ai.analysis.reading.time_window import parsed_window

    out = tmp_path / "some.pfw"
    window = parsed_window("1.2s+0.1s")
    out.write_bytes(b"".join(MergedTrace(open_traces([job / "t-a-100.pfw.gz"]).files, window)))
    times, faults = shown(out)
    assert times == [at * MS for at in (1210, 1230, 1250, 1270, 1290)]
    assert faults == []


def test_what_is_for_dftracer_holds_none(job: Path, tmp_path: Path) -> None:
    report = said("convert", job, "--to", "dftracer", "-o", tmp_path / "out", "--json")
    assert report["notes"] == []
    for file in report["files"]:
        text = gzip.decompress((tmp_path / "out" / file["path"]).read_bytes())
        assert b'"ph":"P"' not in text
        assert text.count(b'"name":"step"') == 120
