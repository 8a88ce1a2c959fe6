"""Traces of torch.profiler beside those of a run: where they lie, and on which clock."""

from __future__ import annotations

import gzip
import json
import stat
import time
from pathlib import Path

import pytest
from conftest import Traced
from safety.commands import invoke

from dftrace_ai import ai
from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces, profiles_beside
from dftrace_ai.cli.trace_server import TraceServer
from dftrace_ai.integrations import profiler as module
from dftrace_ai.integrations.profiler import trace_handler

BASE_NS = 1_700_000_000_000_000_000
AHEAD_NS = 3_000_000_000
NEAR_US = 50_000


class Profiler:
    """What torch.profiler hands to its handler."""

    def __init__(self, text: str | None = None) -> None:
        event = {"ph": "X", "cat": "cpu_op", "name": '"baseTimeNanoseconds": 7', "pid": 1, "tid": 1}
        made = {"traceEvents": [{**event, "ts": 5, "dur": 1}], "baseTimeNanoseconds": BASE_NS}
        self.text = json.dumps(made) if text is None else text

    def export_chrome_trace(self, path: str) -> None:
        if not self.text:
            raise RuntimeError("the profiler has nothing")
        Path(path).write_text(self.text)


def test_a_profile_has_the_clock_and_the_rights_of_the_trace(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = trace_handler()
    handle(Profiler())
    assert "there is no run" in caplog.text
    wall = time.time_ns
    with traced(perfetto=False, file_mode="0640") as run:
        with ai.compute.step:
            monkeypatch.setattr(module.time, "time_ns", lambda: wall() + AHEAD_NS)
            handle(Profiler())  # the wall clock was set meanwhile
            monkeypatch.undo()
            handle(Profiler("{}"))
        caplog.clear()
        handle(Profiler(""))
        assert "is not kept: RuntimeError: the profiler has nothing" in caplog.text
    first, second = profiles_beside([run.trace.path])
    base = run.trace.path.name.removesuffix(".pfw.gz")
    assert [first.name, second.name] == [f"{base}.profile-{n}.pt.trace.json.gz" for n in (0, 1)]
    assert stat.S_IMODE(first.stat().st_mode) == 0o640
    with gzip.open(first) as file:
        kept = json.load(file)
    assert kept["traceEvents"][0]["name"] == '"baseTimeNanoseconds": 7'
    assert abs(kept["baseTimeNanoseconds"] - (BASE_NS - AHEAD_NS)) < AHEAD_NS / 2
    told = [e.args for e in run.trace.of("i") if e.name == "torch.profiler"]
    assert [args["file"] for args in told] == [first.name, second.name]
    # With the directory they are not read: what they hold of the run would count twice.
    assert [file.path for file in open_traces([run.folder]).files] == [run.trace.path]
    first.with_name("x.profile-0.pt.trace.json.gz").symlink_to(first)
    assert profiles_beside([run.trace.path]) == [first, second]


def test_torch_s_profiler_and_the_trace_are_shown_on_one_clock(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, record_function

    with traced(perfetto=False) as run:
        given = {"activities": [ProfilerActivity.CPU], "on_trace_ready": trace_handler()}
        with profile(**given), ai.compute.step, record_function("marked"):
            torch.ones(2, 2).sum()
    trace = run.trace
    (kept,) = profiles_beside([trace.path])
    lines = b"".join(MergedTrace(open_traces([trace.path, kept]))).splitlines()[1:]
    events = [json.loads(line.removesuffix(b",")) for line in lines]
    step, marked = (
        next(e for e in events if e["name"] == name and e["ph"] == "X")
        for name in ("step", "marked")
    )
    assert step["pid"] != marked["pid"]
    # One lies in the other, to what the profiler's own idea of the time may be off.
    assert step["ts"] - NEAR_US <= marked["ts"]
    assert marked["ts"] + marked["dur"] <= step["ts"] + step["dur"] + NEAR_US
    monkeypatch.setattr(TraceServer, "serve", lambda _: None)
    shown = invoke("view", trace.path.parent, "--no-browser", "--json")
    assert (shown.status, json.loads(shown.out)["files"]) == (0, 2)
    kept.write_text("nothing")
    shown = invoke("view", trace.path.parent, "--no-browser", "--json")
    assert (shown.status, json.loads(shown.out)["files"]) == (0, 1)
    assert kept.name in shown.err
