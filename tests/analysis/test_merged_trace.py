"""Many files as the one stream that a viewer gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace

from dftrace_ai.analysis.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces


def merged(directory: Path) -> tuple[list[bytes], list[dict[str, Any]], MergedTrace]:
    trace = MergedTrace(open_traces([directory]))
    text = b"".join(trace)
    assert text.startswith(b"[\n")
    assert text.endswith(b"}\n")
    lines = text.splitlines()
    return lines, [json.loads(line) for line in lines[1:]], trace


def test_one_bracket_then_the_lines_of_all(tmp_path: Path) -> None:
    traces = [small_trace(pid) for pid in (100, 200, 300)]
    for trace, name in zip(traces, ("a.pfw", "b.pfw.gz", "c.pfw.zst"), strict=True):
        trace.write(tmp_path / name)
    lines, _, found = merged(tmp_path)
    assert lines == [b"["] + [line.encode() for trace in traces for line in trace.lines[1:]]
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
    assert len(events) == 2 * (len(small_trace().lines) - 1)
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
