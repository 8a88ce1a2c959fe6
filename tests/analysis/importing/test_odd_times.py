"""Times in traces of others that cannot be: left out or cut, told, and never a verdict's reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safety.commands import invoke

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.why import why

STEP_US = 10_000
FAR_US = 4_600_000_000_000
BASE = {"baseTimeNanoseconds": 1_759_104_000_000_000_000}
DAYS_US = 30 * 86_400e6

Events = list[dict[str, Any]]


def steps(count: int = 30, start_us: int = 1_000_000) -> Events:
    """Steps as torch.profiler writes them, of 10 ms each, of which ten kernels take 8 ms."""
    events = []
    for step in range(count):
        at = start_us + step * STEP_US
        host = {"ph": "X", "pid": 1, "tid": 1}
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        optimizer = "Optimizer.step#SGD.step"
        events += [
            {**host, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at},
            {**host, "cat": "cpu_op", "name": name, "ts": at + 10, "dur": 100},
            {**host, "cat": "cpu_op", "name": "aten::mm", "ts": at + 150, "dur": 200},
            {**host, "cat": "user_annotation", "name": optimizer, "ts": at + 9500, "dur": 300},
        ]
        events[-4]["dur"] = STEP_US
        events += [kernel(at + 500 + number * 900, 800) for number in range(10)]
    return events


def kernel(ts: float, dur: float, **more: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": 7}
    event = {"ph": "X", "cat": "kernel", "name": "fmha_bwd", "pid": 0, "tid": 7}
    return {**event, "ts": ts, "dur": dur, "args": args, **more}


def kernels(events: Events) -> Events:
    return [event for event in events if event["cat"] == "kernel"]


def written(path: Path, events: Events, **members: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **members}))
    return path


def figures(path: Path) -> tuple[str, float | None, int]:
    """The verdict, the length of the run in ms, and what a kernel takes on the mean."""
    found = summarise([path])
    length_ns = found.reach.length_ns if found.reach else None
    (row,) = [row for row in found.spans if row.name == "fmha_bwd"]
    return why([path]).verdict, length_ns and length_ns / 1e6, round(row.mean_us)


@pytest.mark.parametrize(("at", "dur_us"), [(55, 60_000), (55, DAYS_US), (-1, 1_600_000)])
def test_a_duration_that_runs_over_its_stream_is_cut(
    tmp_path: Path, at: int, dur_us: float
) -> None:
    events = steps()
    kernels(events)[at]["dur"] = dur_us
    verdict, length_ms, mean_us = figures(written(tmp_path / "b.json", events))
    assert (verdict, length_ms) == ("host-bound", pytest.approx(300, abs=1))
    assert mean_us in (800, 802)


def test_one_of_the_host_is_cut_where_it_would_be_all_of_the_run(tmp_path: Path) -> None:
    events = steps()
    path = written(tmp_path / "t.json", events)
    before = why([path])
    operation = next(one for one in events if one["name"] == "aten::mm")
    operation["dur"] = DAYS_US
    for text in (
        json.dumps({"schemaVersion": 1, "traceEvents": events}),
        "\n".join(map(json.dumps, events)) + "\n",
    ):
        path.write_text(text)
        after = why([path])
        assert (after.verdict, after.length_ns) == (before.verdict, before.length_ns)
        assert any("1 duration that cannot be" in note for note in after.notes)


def test_what_may_overlap_on_a_gpu_stays_as_it_is(tmp_path: Path) -> None:
    events = steps(3)
    start = events[-1]["ts"] + 1000
    kept = [
        # A dependent launch begins while the one before it ends.
        kernel(start, 100),
        kernel(start + 90, 50),
        # Two streams on one thread; and ranges, which hold what lies in them.
        kernel(start + 200, 700, args={"stream": 8}),
        kernel(start + 250, 100, args={"stream": 9}),
        kernel(start + 140, 900, cat="gpu_user_annotation", name="outer"),
        kernel(start + 150, 90, cat="gpu_user_annotation", name="inner"),
        # Branches of a graph are launched at once.
        kernel(start + 1000, 400, args={"stream": 7, "correlation": 5}),
        kernel(start + 1100, 100, args={"stream": 7, "correlation": 5}),
        # Twice the same.
        kernel(start + 2000, 100),
        kernel(start + 2000, 100),
    ]
    path = written(tmp_path / "t.json", [*events, *kept])
    (trace,) = open_traces([path])
    assert trace.file.notes == ()
    assert [event["dur"] for _, event in trace.events()][-10:] == [one["dur"] for one in kept]
    cut = [
        kernel(start, 1500.5, cat="gpu_memcpy", name="Memcpy HtoD"),
        kernel(start + 100, 50, cat="gpu_memset", name="Memset"),
        kernel(start + 10, 400, cat="kernel", args={"stream": 12, "device": 1}),
        kernel(start + 200, 9, cat="kernel", args={"stream": 12, "device": 1}),
        kernel(start + 50, 1500.5 - 50, cat="gpu_user_annotation", name="of both"),
    ]
    path = written(tmp_path / "t.json", [*events, *cut])
    (trace,) = open_traces([path])
    assert [event["dur"] for _, event in trace.events()][-5:] == [100, 50, 190, 9, 50]
    (note,) = trace.file.notes
    assert note.startswith(f"{path}: 3 durations that cannot be, cut where")


@pytest.mark.parametrize(("start_us", "members"), [(1_000_000, {}), (FAR_US, BASE), (FAR_US, {})])
def test_events_at_times_far_from_all_others_are_left_out(
    tmp_path: Path, members: dict[str, Any], start_us: int
) -> None:
    events = steps(30, start_us)
    odd = [0, -5.25, -9e12, 4.6e15, start_us + 2 * 3_600e6]
    for event, ts in zip(kernels(events)[50:], odd, strict=False):
        event["ts"] = ts
    path = written(tmp_path / "t.json", events, **members)
    assert figures(path) == ("host-bound", 300, 800)
    assert summarise([path]).events == len(events) - len(odd)
    told = f"{path}: 5 events at times that cannot be, far from all others, left out"
    assert told in why([path]).notes


def test_every_command_tells_what_was_put_right(tmp_path: Path) -> None:
    events = steps()
    kernels(events)[50]["ts"] = 0
    kernels(events)[55]["dur"] = DAYS_US
    path = written(tmp_path / "t.json", events)
    query = "select count(*) from spans where name = 'fmha_bwd'"
    for command in (
        ("summary", path),
        ("why", path),
        ("info", path),
        ("sql", path, query),
        ("report", path, "-o", tmp_path / "r.html", "--force"),
        ("diff", path, path),
        ("convert", path, "--to", "perfetto", "--out", tmp_path / "p.json", "--force"),
        ("convert", path, "--to", "parquet", "--out", tmp_path / "parquet", "--force"),
        ("convert", path, "--to", "dftracer", "--out", tmp_path / "dftracer", "--force"),
    ):
        done = invoke(*command)
        words = " ".join((done.out + done.err).split())
        assert "1 event at times that cannot be" in words, command
        assert "1 duration that cannot be" in words, command
    assert len((tmp_path / "p.json").read_text("utf-8").splitlines()) == len(events)


def test_ghosts_of_no_length_halve_no_mean(tmp_path: Path) -> None:
    events = steps(60, FAR_US)
    for event in events[len(events) // 2 :]:
        event.update(ts=0.0, dur=0.0)
    path = written(tmp_path / "t.json", events, **BASE)
    assert figures(path) == ("host-bound", 300, 800)
    assert summarise([path]).events == len(events) // 2


def test_who_counts_from_its_own_beginning_may_begin_there(tmp_path: Path) -> None:
    for events in (
        steps(30, 0),
        [*steps(30, -3 * STEP_US), kernel(0, 0)],
        [{**one, "cat": "mine"} for one in (kernel(0, 5), kernel(40 * 3_600e6, 5))],
    ):
        (trace,) = open_traces([written(tmp_path / "t.json", events)])
        assert trace.file.notes == ()
        assert len(list(trace.events())) == len(events)
