"""Samples and their stacks for SQL, and how long a run was in which line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from analysis.lines.made_programs import Program, write_job
from analysis.lines.made_stacks import MadeStacks
from analysis.trace_lines import TIME_BASE_US, TraceLines
from safety.commands import invoke

from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.time_window import parsed_window
from dftrace_ai.analysis.sql import TraceTables

MS = 1_000_000
MAIN = ("main", "train.py", 41)
DECODE = ("Data.decode", "pkg/augment.py", 88)
NORM = ("Tensor.norm", "torch/_tensor.py", 0, True)
BASE_NS = TIME_BASE_US * 1000


def asked(path: Path, *queries: str) -> list[list[Any]]:
    with TraceTables(open_traces([path])) as tables:
        found = [[*tables.query(query).rows()] for query in queries]
        assert not tables.notes
    return found


@pytest.fixture
def spans(tmp_path: Path) -> Path:
    """Two threads: spans within spans, beside each other, and none; samples at known moments."""
    trace = TraceLines(100, rank=3, world_size=4)
    trace.span("inner", "compute", 20 * MS, 10 * MS)
    trace.span("inner", "compute", 40 * MS, 10 * MS)
    trace.span("outer", "compute", 10 * MS, 50 * MS)
    trace.span("other", "data", 10 * MS, 90 * MS, tid=7)
    for tid in (100, 7):
        stacks = MadeStacks(trace, 0, 100, tid)
        for at in (5, 15, 20, 29, 30, 45, 59, 60, 95):
            stacks.sample(at * MS, [MAIN, DECODE] if at < 50 else [MAIN], 5 * at, cut=at == 95)
        stacks.end()
    trace.footer(samples=18)
    trace.write(tmp_path / "t-a-100.pfw.gz")
    return tmp_path


def test_a_sample_has_the_innermost_span_that_is_open_then(spans: Path) -> None:
    main, other = asked(
        spans,
        f"select (at_ns - {BASE_NS}) / {MS}, span from samples where tid = 100 order by 1",
        "select distinct span from samples where tid = 7 order by 1 nulls first",
    )
    open_then = {5: None, 15: 3, 20: 1, 29: 1, 30: 3, 45: 2, 59: 3, 60: None, 95: None}
    assert dict(main) == open_then
    assert [row[0] for row in other] == [None, 4]


def test_its_columns_are_what_the_lines_say(spans: Path) -> None:
    rows, frames, joined = asked(
        spans,
        "select process, rank, pid, tid, cpu_ns, since_ns, cut, period_ns from samples "
        "where tid = 7 order by at_ns",
        "select depth, function, file, line, library from stacks order by stack, depth",
        "select count(*), count(distinct stack) from samples join stacks using (stack)",
    )
    assert rows[0] == (0, 3, 100, 7, 25_000, 5 * MS, False, 10 * MS)
    assert rows[-1] == (0, 3, 100, 7, 475_000, 35 * MS, True, 10 * MS)
    one = [(0, "main", "train.py", 41, False)]
    two = [*one, (1, "Data.decode", "pkg/augment.py", 88, False)]
    assert sorted([frames[:1], frames[1:]], key=len) == [one, two]
    assert joined == [(2 * (6 * 2 + 3), 2)]


def test_traces_without_samples_have_none(tmp_path: Path) -> None:
    Program(hz=0, steps=3).write(tmp_path)
    assert asked(tmp_path, "from samples", "from stacks") == [[], []]
    found = json.loads(invoke("summary", tmp_path, "--by", "line", "--json").out)
    assert found["lines"] == []
    assert "DFTRACE_LINES_HZ" in invoke("summary", tmp_path, "--by", "line").out


def test_stacks_of_several_processes_have_numbers_of_their_own(tmp_path: Path) -> None:
    programs = [Program(steps=20, loop=[(15, 1, [(f"f{n}", "train.py", n)])]) for n in (1, 2)]
    write_job(tmp_path, programs)
    (rows,) = asked(
        tmp_path,
        "select rank, function, count(*) > 15 from samples join stacks using (stack) "
        "where function in ('f1', 'f2') group by all order by all",
    )
    assert rows == [(0, "f1", True), (1, "f2", True)]


def test_lines_are_added_up(tmp_path: Path) -> None:
    trace = TraceLines(100)
    stacks = MadeStacks(trace, 0, 50)
    for at in range(10):
        own = [DECODE, NORM] if at < 7 else []
        stacks.sample((at + 1) * 20 * MS, [MAIN, DECODE, *own] if at < 2 else [MAIN, *own], 5000)
    stacks.end()
    trace.footer(samples=10)
    trace.write(tmp_path / "t-a-100.pfw")
    found = json.loads(invoke("summary", tmp_path, "--by", "line", "--json").out)
    decode, main = found["lines"]
    # A line that is on a stack twice counts once; what a library does is its caller's own.
    assert (decode["function"], decode["file"], decode["line"]) == DECODE
    assert [decode[name] for name in ("samples", "total_us", "self_us")] == [7, 140_000, 140_000]
    assert [main[name] for name in ("samples", "total_us", "self_us")] == [10, 200_000, 60_000]
    assert [decode["share"], main["share"]] == [0.7, 0.3]
    assert [decode["cpu_us"], main["cpu_us"]] == pytest.approx([35_000, 15_000])
    top = json.loads(invoke("summary", tmp_path, "--by", "line", "--top", "1", "--json").out)
    assert (len(top["lines"]), top["rows_left_out"]) == (1, 1)
    done = invoke("summary", tmp_path, "--by", "line")
    row = next(line.split() for line in done.out.splitlines() if "decode" in line)
    assert row == "Data.decode (augment.py:88) 7 140 ms 140 ms 70.0% 25.0%".split()
    refused = invoke("summary", tmp_path, "--by", "line", "--where", "cat = data")
    assert refused.status == 2
    assert "--by line takes no --where" in refused.err


def odd_stacks(trace: TraceLines, tid: int, **odd: Any) -> None:
    """Write samples of a thread that can be but for what is told."""
    said = {"hz": 100, "start": 0, "name": "f (a.py:1)", "url": "a.py", "line": 1}
    said |= {"frames": 1, "since": 0, "cpu": 0} | odd
    stacks = MadeStacks(trace, 0, 100, tid)
    begin = {"hz": said["hz"], "data": {"startTime": said["start"]}}
    stacks.line("Profile", 0, {"hhash": trace.host_hash, **begin})
    names = {"functionName": said["name"], "url": said["url"]}
    frame = {**names, "scriptId": 0, "lineNumber": said["line"]}
    nodes = [{"id": 1, "callFrame": frame}]
    nodes += [{"id": n, "parent": n - 1, "callFrame": frame} for n in range(2, said["frames"] + 1)]
    profile = said.get("profile", {"nodes": said.get("nodes", nodes), "samples": [len(nodes)]})
    columns = {"timeDeltas": [said["since"]], "cpu": [said["cpu"]], "cut": said.get("cut", [0])}
    data = {"cpuProfile": profile, **columns}
    stacks.line("ProfileChunk", 0, {"hhash": trace.host_hash, "data": data})


def circle(frames: int, ids: int = 0) -> list[dict[str, Any]]:
    """Nodes of which each calls the next, and the last the first; or so many ids told again and again."""
    frame = {"functionName": "f", "url": "a.py", "scriptId": 0, "lineNumber": 1}
    if not ids:
        return [
            {"id": n, "parent": n % frames + 1, "callFrame": frame} for n in range(1, frames + 1)
        ]
    first = {"id": 0, "callFrame": frame}
    again = ({"id": n % ids, "parent": (n - 1) % ids, "callFrame": frame} for n in range(1, frames))
    return [first, *again]


def test_samples_that_cannot_be_are_told_and_left_out(tmp_path: Path) -> None:
    trace = TraceLines(100)
    odd_stacks(trace, 7, frames=1000)
    odd: list[dict[str, Any]] = [
        *({"hz": hz} for hz in (0, -1, 1e-12, 1e300, "x")),
        *({"start": start} for start in (-1, -(10**30), 10**30, 2**53)),
        *({"line": line} for line in (-1, 2**31, 10**30)),
        *({"name": name, "url": ""} for name in (5, True, [1])),
        {"url": 5},
        {"frames": 1001},
        *({"nodes": nodes} for nodes in ({"a": 1}, ["a"], 5)),
        *({"profile": profile} for profile in ([], "a", 5, {"samples": [9]})),
        *({"nodes": nodes} for nodes in (circle(1), circle(2), circle(1200, ids=2))),
        {"cut": []},
        *({"since": since} for since in (-1, 2**53, 2**63, 10**30)),
        *({"cpu": cpu} for cpu in (-2, 2**53, 2**63)),
    ]
    for tid, one in enumerate(odd, 8):
        odd_stacks(trace, tid, **one)
    trace.footer()
    trace.write(tmp_path / "t-a-100.pfw.gz")
    # Where the beginning of a profile cannot be read, its samples cannot, either.
    told = f"{len(odd) + 9} lines of samples that cannot be read"
    done = invoke("summary", tmp_path, "--by", "line", "--json")
    assert [row["samples"] for row in json.loads(done.out)["lines"]] == [1]
    assert told in done.err
    for form in ("speedscope", "pprof"):
        done = invoke("convert", tmp_path, "--to", form, "-o", tmp_path / form)
        assert told in done.err
    # A window asks less of them: of those that it has to take apart.
    window = MergedTrace(open_traces([tmp_path]).files, parsed_window("0s+1s"))
    assert b'"tid":7,' in b"".join(window)


def test_frames_of_many_deep_stacks_are_bounded_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = TraceLines(100)
    for tid in range(7, 17):
        odd_stacks(trace, tid, frames=1000, name=f"f{tid} (a.py:1)")
    trace.footer()
    trace.write(tmp_path / "t-a-100.pfw")
    monkeypatch.setattr("dftrace_ai.analysis.lines.tables.MOST_ROWS", 5500)
    with TraceTables(open_traces([tmp_path])) as tables:
        query = "select count(*), count(distinct stack), max(depth) from stacks"
        assert [*tables.query(query).rows()] == [(5000, 5, 999)]
        assert tables.notes == ("stacks: 5 stacks left out, beyond 5,500 frames of others",)
        assert [*tables.query("select count(*) from samples").rows()] == [(10,)]


@pytest.mark.parametrize("file", ["train (copy).py", "a (b)/c (d).py"])
def test_a_file_may_have_brackets_in_its_name(tmp_path: Path, file: str) -> None:
    trace = TraceLines(100)
    odd_stacks(trace, 7, name=f"Data.decode ({file}:12)", url=file, line=12)
    odd_stacks(trace, 8, name=f"Data.decode ({file})", url=file, line=0)
    trace.footer()
    trace.write(tmp_path / "t-a-100.pfw.gz")
    rows = json.loads(invoke("summary", tmp_path, "--by", "line", "--json").out)["lines"]
    assert [(row["function"], row["file"]) for row in rows] == [("Data.decode", file)] * 2
