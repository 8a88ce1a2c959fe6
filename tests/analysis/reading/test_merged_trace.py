"""Many files as the one stream that a viewer gets: its times, processes and tracks, and a window of it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from analysis.broken_traces import traces
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perfetto import engine
from safety.commands import invoke

from dftrace_ai import _reader
from dftrace_ai.analysis.merging import file_lines
from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.given_lines import GivenLines
from dftrace_ai.analysis.reading.time_window import TimeWindow
from dftrace_ai.errors import TraceError


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
    assert found.notes == []
    assert found.told == ["pids of 1 process changed, since hosts share them"]


def test_ranks_are_shown_in_their_order(tmp_path: Path) -> None:
    """Viewers sort processes as they are told, or with equal numbers of spans by name."""
    for rank in (2, 10, 0):
        pid = 500 - rank
        trace = TraceLines(pid, rank=rank)
        trace.span("forward", "compute", 0, 1000)
        trace.footer()
        trace.write(tmp_path / f"t-host-{pid}.pfw")
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
        rank = {"rank": ranks[host, pid]} if (host, pid) in ranks else {}
        of_host = {"host": host, "host_hash": f"00000000000000f{host}"}
        trace = TraceLines(pid, **of_host, ppid=parent, **rank)
        trace.span(f"{host}{pid}", "compute", 0, 1000)
        trace.footer()
        trace.write(tmp_path / f"t-{host}-{pid}.pfw")
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


FAKE = Path(sys.executable).parent / "dftracer_gen_fake_trace"

NEW_DFTRACER = """\
{"name":"HH","ph":4,"type":1,"args":{"hhash":"e6","name":"node-0","value":"e6"}}
{"name":"thread_name","ph":4,"type":1,"pid":7,"tid":7,"args":{"name":"main"}}
{"id":0,"name":"open","cat":"POSIX","pid":7,"tid":7,"ts":1000,"dur":5,"ph":1,"type":3,"args":{"ret":3}}
{"id":1,"name":"cpu","cat":"sys","pid":7,"tid":7,"ts":1001,"ph":2,"type":3,"args":{"user":0.5}}
{"id":2,"name":"mark","cat":"app","pid":7,"tid":7,"ts":1002,"ph":3,"type":3,"args":{"n":1}}
{"id":3,"name":"read","cat":"POSIX","pid":7,"tid":7,"ts":1003,"dur":1,"ph":"1","args":{"ph":1}}
{"id":4,"name":"odd","cat":"POSIX","pid":7,"tid":7,"ts":1003,"dur":1,"ph":9}
{"id":5,"name":"close","cat":"POSIX","pid":7,"tid":7,"ts":1006,"dur":1,"ph":1,"type":3}
"""


def events_of(merged: MergedTrace) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(merged).splitlines()[1:]]


def order_of(merged: MergedTrace) -> dict[int, list[int]]:
    """The tracks of each process in the order that a viewer is told."""
    found: dict[int, dict[int, int]] = {}
    for event in events_of(merged):
        if event["name"] == "thread_sort_index":
            found.setdefault(event["pid"], {})[event["args"]["sort_index"]] = event["tid"]
    return {pid: [tid for _, tid in sorted(places.items())] for pid, places in found.items()}


def test_phases_that_dftracer_numbers_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "t.pfw"
    path.write_text(NEW_DFTRACER)
    for out in (tmp_path / "view.json", tmp_path / "converted.json"):
        if out.name == "view.json":
            merged = MergedTrace(open_traces([path]))
            out.write_bytes(b"".join(merged))
            assert merged.notes == [f"{path}: lines without an event left out: 1"]
        else:
            done = invoke("convert", path, "--to", "perfetto", "--out", out)
            assert "lines without an event left out: 1" in done.err
        shown = engine.view(out)
        assert shown.answer.clean
        assert [s.name for s in shown.slices] == ["open", "mark", "read", "close"]
        assert [s.dur_ns for s in shown.slices] == [5000, 0, 1000, 1000]
        assert shown.slices[2].arg == {"ph": 1}
        assert [sample.value for sample in shown.counters] == [0.5]
        assert shown.thread_names[7, 7] == "main"


def test_a_trace_by_dftracers_own_program_is_shown_whole(tmp_path: Path) -> None:
    made = [str(FAKE), "-o", str(tmp_path / "in"), "-p", "2", "-H", "1", "-e", "1", "-s", "3"]
    done = subprocess.run(made, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    traces = open_traces([tmp_path / "in"])
    read = Counter(event["name"] for trace in traces for _, event in trace.events())
    phases = {type(event["ph"]) for trace in traces for _, event in trace.events()}
    assert phases == {int}
    out = tmp_path / "out.json"
    merged = MergedTrace(traces)
    out.write_bytes(b"".join(merged))
    assert merged.notes == []
    shown = engine.view(out)
    assert shown.answer.load_ok
    spans = Counter(s.name for s in shown.slices)
    assert spans
    assert spans == {name: count for name, count in read.items() if name not in ("HH", "FH", "SH")}


def test_tracks_stand_in_their_natural_order(tmp_path: Path) -> None:
    names = {
        100: "MainThread",
        120: "worker10",
        121: "worker2",
        110: "pt_autograd_0",
        111: "pt_autograd_1",
        130: "pool",
        140: "pool",
        0x40000000: "MainThread · task lane 1",
        0x40000001: "MainThread · task lane 10",
        0x40000002: "MainThread · task lane 2",
        0x40000003: "steps",
        0x40000004: "worker2 · task lane 1",
        0x40000005: "tensor stats",
        0x40000006: "nobody · task lane 1",
        0x50000000: "MainThread · overlapping",
        0x60000001: "pool · logged",
    }
    trace = TraceLines(100)
    for tid, name in reversed(names.items()):
        if tid != 100:
            trace.meta("thread_name", {"name": name}, tid=tid)
        trace.span("s", "c", 1000, 10, tid=tid)
    trace.write(tmp_path / "a.pfw")
    small_trace(200, host="other", host_hash="ff").write(tmp_path / "b.pfw")
    merged = MergedTrace(open_traces([tmp_path]))
    orders = order_of(merged)
    assert [names[tid] for tid in orders[100]] == [
        *("MainThread", "MainThread · overlapping", "MainThread · task lane 1"),
        *("MainThread · task lane 2", "MainThread · task lane 10"),
        *("steps", "pt_autograd_0", "pt_autograd_1"),
        *("pool", "pool · logged", "pool", "worker2", "worker2 · task lane 1", "worker10"),
        *("nobody · task lane 1", "tensor stats"),
    ]
    assert orders[100][8] == 130
    # A process of one track needs no order.
    assert list(orders) == [100]
    out = tmp_path / "out.json"
    out.write_bytes(b"".join(merged))
    assert engine.view(out).answer.clean


def test_a_process_that_is_renumbered_has_its_tracks_ordered_by_its_new_number(
    tmp_path: Path,
) -> None:
    for host in ("a", "b"):
        trace = TraceLines(100, host=host, host_hash=f"00000000000000f{host}")
        for tid, name in ((100, "main"), (101, "w10"), (102, "w9")):
            trace.meta("thread_name", {"name": f"{name} {host}"}, tid=tid)
        trace.write(tmp_path / f"{host}.pfw")
    (one, tids), (other, others) = order_of(MergedTrace(open_traces([tmp_path]))).items()
    assert (one, tids) == (100, [100, 102, 101])
    assert others == [other, 102, 101]


def test_a_file_that_orders_its_tracks_is_left_as_it_is(tmp_path: Path) -> None:
    trace = TraceLines(100)
    for tid in (101, 102):
        trace.meta("thread_name", {"name": "t"}, tid=tid)
        trace.meta("thread_sort_index", {"sort_index": -tid}, tid=tid)
    trace.write(tmp_path / "a.pfw")
    assert order_of(MergedTrace(open_traces([tmp_path]))) == {100: [102, 101]}


def all_given(*words: Any) -> _reader.Rewriting:
    """One that leaves every line to Python."""
    *how, _, counters, packed = words
    return _reader.Rewriting(*how, True, counters, packed)


def window_of(paths: list[Path], window: TimeWindow) -> tuple[bytes, list[str]] | str:
    try:
        merged = MergedTrace(open_traces(paths), window)
        return b"".join(merged), merged.notes
    except TraceError as error:
        return str(error)


@settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(traces(), min_size=1, max_size=2),
    begin=st.sampled_from([0, 3, 11, 29, 31, 32, 500, TIME_BASE_US]),
    length=st.sampled_from([0, 1, 5, 1000]),
    packed=st.booleans(),
)
def test_both_show_the_same(
    texts: list[bytes], begin: int, length: int, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = TimeWindow(float(begin), float(begin + length))
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, text in enumerate(texts):
            paths.append(Path(folder) / f"{number}.pfw")
            blocks = text.splitlines(keepends=True)
            paths[-1].write_bytes(b"".join(map(gzip.compress, blocks)) if packed else text)
        found = window_of(paths, window)
        with monkeypatch.context() as patch:
            patch.setattr(file_lines, "Rewriting", all_given)
            assert found == window_of(paths, window)


def test_what_is_elsewhere_is_not_looked_at_in_python(tmp_path: Path) -> None:
    trace = TraceLines()
    for step in range(1000):
        trace.span("step", "compute", step * 1_000_000, 900_000, step=step)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw.gz", lines_a_block=50)
    (file,) = open_traces([path])
    window = (500_000_000, 509_500_000)
    near = _reader.Rewriting(0, 0, [], window, None, False, False, False)
    given = [orjson.loads(line) for _, _, line in GivenLines(file.file, near) if line != b"["]
    assert [event["ph"] for event in given] == ["M"] * 4
    written = map(orjson.loads, near.take(True).splitlines())
    assert [event["args"]["step"] for event in written] == list(range(500, 510))
    assert near.reach == (0, 999_900_000)
