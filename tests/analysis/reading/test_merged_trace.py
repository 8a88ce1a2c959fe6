"""Many files as the one stream that a viewer gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace
from perfetto import engine

from dftrace_ai.analysis.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces


def merged(directory: Path) -> tuple[list[bytes], list[dict[str, Any]], MergedTrace]:
    trace = MergedTrace(open_traces([directory]))
    text = b"".join(trace)
    assert text.startswith(b"[\n")
    assert text.endswith(b"}\n")
    lines = text.splitlines()
    return lines, [json.loads(line) for line in lines[1:]], trace


def written(folder: Path, lines: list[bytes]) -> Path:
    path = folder / "merged.json"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def test_one_bracket_then_the_lines_of_all(tmp_path: Path) -> None:
    traces = [small_trace(pid) for pid in (100, 200, 300)]
    for trace, name in zip(traces, ("a.pfw", "b.pfw.gz", "c.pfw.zst"), strict=True):
        trace.write(tmp_path / name)
    lines, events, found = merged(tmp_path)
    told = [line.encode() for trace in traces for line in trace.lines[1:]]
    assert lines[: 1 + len(told)] == [b"[", *told]
    added = events[len(told) :]
    assert [event["name"] for event in added] == ["process_name", "process_sort_index"] * 3
    assert found.notes == []


def test_many_lines_come_in_many_chunks(tmp_path: Path) -> None:
    trace = small_trace()
    for number in range(9000):
        trace.instant("x" * 100, 10 + number)
    trace.write(tmp_path / "t.pfw.gz", 1000)
    found = MergedTrace(open_traces([tmp_path]))
    chunks = list(found)
    assert len(chunks) > 2
    assert b"".join(chunks) == trace.text


def test_a_trace_without_events_is_still_opened_by_a_viewer(tmp_path: Path) -> None:
    (tmp_path / "t.pfw").touch()
    assert b"".join(MergedTrace(open_traces([tmp_path]))) == b"[\n"


def test_what_is_broken_is_left_out_and_told(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.insert(5, "nonsense")
    trace.lines.append("]")
    text = trace.text
    (tmp_path / "a.pfw").write_bytes(text + b'{"cut')
    small_trace(200).write(tmp_path / "b.pfw")
    lines, events, found = merged(tmp_path)
    of_files = [event for event in events[:-4] if event["name"] != "process_sort_index"]
    assert len(of_files) == 2 * (len(small_trace().lines) - 1)
    assert lines.count(b"[") == 1
    notes = "\n".join(found.notes)
    assert "a.pfw: lines without an event left out: 1" in notes
    assert "a.pfw: torn: line 19 is cut" in notes


def test_time_bases_are_brought_to_one(tmp_path: Path) -> None:
    days = 20 * 86_400 * 1_000_000
    early = TraceLines(1)
    early.span("early", "c", 5_123, 7)
    early.write(tmp_path / "a.pfw")
    later = TraceLines(2, time_base_us=TIME_BASE_US + days)
    later.span("later", "c", 5_123, 7, note='"ts":1')
    later.counter("loss", 6_001, ts=5)
    later.meta("CM", {"ts": 5}, cat="dftracer")
    later.write(tmp_path / "b.pfw")
    whole = TraceLines(3, timestamps="epoch_us")
    whole.span("whole", "c", TIME_BASE_US * 1000 + 9_000, 7_000)
    whole.write(tmp_path / "c.pfw")
    lines, events, _ = merged(tmp_path)
    ts = {event["name"]: event["ts"] for event in events if "ts" in event}
    assert ts["early"] == 5.123
    assert b'"ts":%d.123' % (days + 5) in b"\n".join(lines)
    assert ts["later"] == days + 5.123
    assert ts["loss"] == days + 6.001
    assert ts["whole"] == 9
    loss = next(event for event in events if event["name"] == "loss")
    assert loss["args"] == {"ts": 5}
    assert next(event for event in events if event["name"] == "CM")["args"] == {"ts": 5}
    assert next(event for event in events if event["name"] == "later")["args"]["note"] == '"ts":1'


def test_a_pid_that_two_hosts_share_is_renumbered(tmp_path: Path) -> None:
    first = TraceLines(100)
    first.span("first", "c", 1000, 10)
    first.write(tmp_path / "a.pfw")
    again = TraceLines(100)
    again.span("again", "c", 5000, 10)
    again.write(tmp_path / "b.pfw")
    other = TraceLines(100, host="other", host_hash="00000000000000ff")
    other.span("main", "c", 1000, 10)
    other.span("worker", "c", 1000, 10, tid=101)
    other.write(tmp_path / "c.pfw")
    _, events, found = merged(tmp_path)
    where = {event["name"]: (event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert where["first"] == where["again"] == (100, 100)
    pid = where["main"][0]
    assert pid != 100
    assert where["main"] == (pid, pid)
    assert where["worker"] == (pid, 101)
    assert [note for note in found.notes if f"shown as {pid}" in note]


def test_ranks_are_shown_in_their_order(tmp_path: Path) -> None:
    """Viewers sort processes as they are told, or with equal numbers of spans by name."""
    for rank in (2, 10, 0):
        pid = 500 - rank
        trace = TraceLines(pid)
        trace.span("forward", "compute", 0, 1000)
        trace.footer()
        text = trace.text.replace(b'"ppid":1', b'"ppid":1,"rank":%d' % rank)
        (tmp_path / f"t-host-{pid}.pfw").write_bytes(text)
    lines, events, _ = merged(tmp_path)
    names = {
        event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"
    }
    assert [names[pid] for pid in (500, 498)] == ["rank 00 · host", "rank 02 · host"]
    order = [event for event in events if event["name"] == "process_sort_index"]
    assert {event["pid"]: event["args"]["sort_index"] for event in order} == {
        500: 1,
        498: 2,
        490: 3,
    }
    shown = engine.view(written(tmp_path, lines))
    assert shown.answer.clean
    assert shown.process_names[498] == "rank 02 · host"


def test_the_processes_that_a_rank_has_started_are_shown_below_it(tmp_path: Path) -> None:
    """Whatever their numbers are, on two hosts that have one of them in common."""
    parents = {("a", 900): 1, ("a", 20): 900, ("a", 30): 20, ("a", 7): 1, ("b", 20): 7, ("b", 7): 1}
    ranks = {("a", 900): 0, ("a", 20): 0, ("a", 30): 0, ("b", 20): 1, ("b", 7): 1}
    for (host, pid), parent in parents.items():
        trace = TraceLines(pid, host=host, host_hash=f"00000000000000f{host}")
        trace.span(f"{host}{pid}", "compute", 0, 1000)
        trace.footer()
        rank = ranks.get((host, pid))
        told = b'"ppid":%d' % parent + (b"" if rank is None else b',"rank":%d' % rank)
        text = trace.text.replace(b'"ppid":1', told)
        (tmp_path / f"t-{host}-{pid}.pfw").write_bytes(text)
    lines, events, found = merged(tmp_path)
    places = {
        event["pid"]: event["args"]["sort_index"]
        for event in events
        if event["name"] == "process_sort_index"
    }
    shown = engine.view(written(tmp_path, lines))
    assert shown.answer.clean
    names = [shown.process_names[pid] for pid in sorted(places, key=lambda pid: places[pid])]
    assert names == [
        *("rank 0 · a", "rank 0 · a · worker 1", "rank 0 · a · worker 2"),
        *("rank 1 · b", "rank 1 · b · worker 1", "python · a"),
    ]
    assert [tuple(one) for one in found.processes()] == [
        (pid, shown.process_names[pid]) for pid in sorted(places, key=lambda pid: places[pid])
    ]


def test_profiles_of_several_ranks_are_told_apart(tmp_path: Path) -> None:
    for rank in range(3):
        kernel = {"ph": "X", "cat": "kernel", "name": f"k{rank}", "pid": 1, "tid": 7}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 70 + rank, "tid": 9}
        arrow = {"cat": "ac2g", "name": "ac2g", "id": 5}
        events = [
            {**launch, "ts": 10.0 + rank, "dur": 5},
            {**kernel, "ts": 20.0 + rank, "dur": 5},
            {**arrow, "ph": "s", "pid": 70 + rank, "tid": 9, "ts": 10.0 + rank},
            {**arrow, "ph": "f", "bp": "e", "pid": 1, "tid": 7, "ts": 20.0 + rank},
            {
                "ph": "X",
                "cat": "Trace",
                "name": "all",
                "pid": "Spans",
                "tid": "t",
                "ts": 1,
                "dur": 99,
            },
        ]
        value = {"baseTimeNanoseconds": 10**18 + rank * 10**6, "traceEvents": events}
        (tmp_path / f"{rank}.pt.trace.json").write_text(json.dumps(value))
    lines, _, _ = merged(tmp_path)
    shown = engine.view(written(tmp_path, lines))
    assert shown.answer.clean
    assert len(shown.slices) == 9
    assert len({one.pid for one in shown.slices}) == 9
    starts = [shown.named(f"k{rank}")[0].ts_ns for rank in range(3)]
    assert starts == [20_000, 1_021_000, 2_022_000]
    ends = {(shown.by_id[f.slice_out].pid, shown.by_id[f.slice_in].name) for f in shown.flows}
    assert ends == {(70 + rank, f"k{rank}") for rank in range(3)}
