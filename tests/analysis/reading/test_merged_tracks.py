"""What the one stream for a viewer makes of other writers' phases, and the order of its tracks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from analysis.trace_lines import TraceLines, small_trace
from perfetto import engine
from safety.commands import invoke

from dftrace_ai.analysis.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces

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
            trace.add(
                json.dumps(
                    {
                        "name": "thread_name",
                        "ph": "M",
                        "pid": 100,
                        "tid": tid,
                        "args": {"name": name},
                    }
                )
            )
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
            args = {"name": f"{name} {host}"}
            trace.add(
                json.dumps(
                    {"name": "thread_name", "pid": 100, "tid": tid, "ph": "M", "args": args},
                    separators=(",", ":"),
                )
            )
        trace.write(tmp_path / f"{host}.pfw")
    (one, tids), (other, others) = order_of(MergedTrace(open_traces([tmp_path]))).items()
    assert (one, tids) == (100, [100, 102, 101])
    assert others == [other, 102, 101]


def test_a_file_that_orders_its_tracks_is_left_as_it_is(tmp_path: Path) -> None:
    trace = TraceLines(100)
    for tid in (101, 102):
        trace.add(
            json.dumps(
                {"name": "thread_name", "pid": 100, "tid": tid, "ph": "M", "args": {"name": "t"}}
            )
        )
        trace.add(
            json.dumps(
                {
                    "name": "thread_sort_index",
                    "pid": 100,
                    "tid": tid,
                    "ph": "M",
                    "args": {"sort_index": -tid},
                }
            )
        )
    trace.write(tmp_path / "a.pfw")
    assert order_of(MergedTrace(open_traces([tmp_path]))) == {100: [102, 101]}
