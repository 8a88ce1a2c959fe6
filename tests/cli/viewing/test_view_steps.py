"""What is shown of steps, and how the counters of tensors stand in a viewer."""

from __future__ import annotations

import gzip
import json
import urllib.request
from pathlib import Path

import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines
from analysis.why.made_runs import Training
from cli.served_traces import serving, stand_in_ui, viewed
from perfetto import engine
from safety.commands import invoke

from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.merging.numbered_steps import numbered_steps, parsed_steps, shown_steps
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.why import why
from dftrace_ai.cli.trace_server import shown_names
from dftrace_ai.errors import DftraceError, TraceError

DAY_US = 86_400_000_000


def ranks(folder: Path) -> Path:
    """Two ranks of forty steps of 10 ms, the second a day and a millisecond later."""
    for rank in range(2):
        base_us = TIME_BASE_US - rank * DAY_US
        trace = TraceLines(100 + rank, time_base_us=base_us, rank=rank)
        late = rank * (DAY_US * 1000 + 10**6)
        for step in range(40):
            at = late + step * 10**7
            trace.span("forward", "compute", at + 100, 5 * 10**6)
            trace.span("step", "pipeline", at, 10**7)
        trace.footer()
        trace.write(folder / f"r{rank}.pfw")
    return folder


def test_a_window_goes_from_the_first_step_to_the_last(tmp_path: Path) -> None:
    traces = open_traces([ranks(tmp_path / "out")])
    shown = shown_steps(traces.files, parsed_steps("10:13"))
    assert shown.window == (DAY_US + 100_000, DAY_US + 131_000)
    assert shown_steps(traces.files, parsed_steps("39:99")).window == (
        DAY_US + 390_000,
        DAY_US + 401_000,
    )
    merged = tmp_path / "merged.json"
    merged.write_bytes(b"".join(MergedTrace(traces, shown.window, shown.tracks)))
    view = engine.view(merged)
    assert view.answer.clean
    named = [one for one in view.slices if one.name.startswith("step ")]
    assert sorted((one.pid, one.name, one.ts_ns) for one in named) == sorted(
        (100 + rank, f"step {step}", DAY_US * 1000 + rank * 10**6 + step * 10**7)
        for rank in range(2)
        for step in range(9, 14)
        if DAY_US + 100_000 <= DAY_US + rank * 1000 + (step + 1) * 10_000
        and DAY_US + rank * 1000 + step * 10_000 <= DAY_US + 131_000
    )
    assert {view.thread_names[one.pid or 0, one.tid or 0] for one in named} == {"steps"}


def test_numbers_are_those_of_why(tmp_path: Path) -> None:
    Training(steps=40, slow={17: 400.0}).write(tmp_path, 1)
    verdict = why([tmp_path])
    slowest = verdict.slowest[0]
    shown = shown_steps(open_traces([tmp_path]).files, range(slowest.step, slowest.step + 1))
    assert shown.window.begin_us == pytest.approx(slowest.at_us, abs=0.001)
    assert shown.window.end_us - shown.window.begin_us >= slowest.ns / 1000 - 0.001
    (lines,) = shown.tracks.values()
    assert len(lines) == 1 + (verdict.steps.count if verdict.steps else 0)
    assert json.loads(lines[slowest.step + 1])["name"] == f"step {slowest.step}"


@pytest.mark.parametrize("text", ["", "-1", "3:1", "1,2", "a", "3:3", "1:2:3", "²"])
def test_what_names_no_steps_is_refused(text: str) -> None:
    with pytest.raises(DftraceError, match="28, or 20:30"):
        parsed_steps(text)


def test_steps_that_are_not_there_are_told(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "out")
    done = invoke("view", folder, "--steps", "40:50")
    assert (done.status, done.out) == (2, "")
    assert done.err == "dftrace: no step 40: there are 40 steps, counted from 0\n"
    done = invoke("view", folder, "--steps", "1", "--at", "1s")
    assert done.status == 2
    assert "--at and --steps cannot be given together" in done.err
    none = TraceLines()
    none.span("a", "b", 0, 1)
    with pytest.raises(TraceError, match="no step 0: none were found"):
        shown_steps(open_traces([none.write(tmp_path / "none.pfw")]).files, range(1))


@pytest.mark.parametrize("suffix", [".pfw", ".pfw.gz"])
def test_steps_have_a_track_without_being_asked_for(tmp_path: Path, suffix: str) -> None:
    """Of a plain file that is put together anew, and of a compressed one behind its own bytes."""
    pytest.importorskip("viztracer")
    (plain,) = Training(steps=40, epochs=1, workers=0, data_told=False).write(tmp_path, 1).iterdir()
    path = tmp_path / f"t-host-100{suffix}"
    text = plain.read_bytes()
    plain.unlink()
    path.write_bytes(gzip.compress(text) if suffix == ".pfw.gz" else text)
    body, _ = viewed(path)
    if suffix == ".pfw.gz":
        assert body.startswith(path.read_bytes())
    sent = tmp_path / "sent.pfw.gz"
    sent.write_bytes(body)
    shown = engine.view(sent)
    assert shown.answer.clean
    named = [one for one in shown.slices if one.name.startswith("step ")]
    assert [one.name for one in named] == [f"step {step}" for step in range(40)]
    assert {shown.thread_names[one.pid or 0, one.tid or 0] for one in named} == {"steps"}


def test_large_traces_and_spans_of_steps_get_no_second_track(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert numbered_steps(open_traces([ranks(tmp_path / "spans")]).files) == {}
    files = open_traces([Training(steps=40).write(tmp_path / "loop", 1)]).files
    assert len(numbered_steps(files)) == 1
    monkeypatch.setattr("dftrace_ai.analysis.merging.numbered_steps.MOST_TEXT_BYTES", 1000)
    assert numbered_steps(files) == {}


def inspected(pid: int) -> TraceLines:
    trace = TraceLines(pid)
    for at, layer in enumerate([10, 0, 2]):
        for tensor in ("weight", "activation"):
            name = f"layers.{layer}.fc:{tensor}"
            args = {"hhash": trace.host_hash, "iteration": 1}
            trace.event("i", name, "tensor_stats", 1000 + at, more=',"s":"t"', **args)
            trace.counter(name, 1000 + at, max=1.5, mean=0.5)
    trace.counter("layers.2.fc", 1500, mine=3.0)
    trace.counter("loss:train", 1500, value=3.0)
    trace.footer()
    return trace


def shown(tmp_path: Path, traces: Path) -> list[str]:
    """The names of counters in the order in which the viewer has their tracks."""
    with (
        serving(traces, stand_in_ui(tmp_path / "page")) as server,
        urllib.request.urlopen(server.origin + server.trace_path) as answer,
    ):
        text = gzip.decompress(answer.read())
    path = tmp_path / "shown.pfw"
    path.write_bytes(text)
    view = engine.view(path)
    return sorted({sample.track for sample in view.counters}, key=str.lower)


LAYERS = [
    f"layers.{layer}.fc / {tensor} / {statistic}"
    for layer in ("00", "02", "10")
    for tensor in ("activation", "weight")
    for statistic in ("max", "mean")
]


def test_layers_stand_together_in_their_natural_order(tmp_path: Path) -> None:
    """Also in a file that could be sent as it lies; what a program counts keeps its name."""
    path = inspected(100).write(tmp_path / "one" / "a.pfw.gz")
    kept = ["layers.2.fc mine", "loss:train value"]
    assert shown(tmp_path / "a", path) == [*LAYERS, *kept]
    inspected(200).write(tmp_path / "one" / "b.pfw.zst")
    assert shown(tmp_path / "b", path.parent) == [*LAYERS, *kept]


def test_names_are_as_long_as_their_numbers_need() -> None:
    names = ["h.9.mlp.3:w", "h.10.mlp.3:w", "head:w", "h.11:w", "no tensor"]
    assert shown_names(names) == {
        "h.9.mlp.3:w": "h.09.mlp.3 / w /",
        "h.10.mlp.3:w": "h.10.mlp.3 / w /",
        "head:w": "head / w /",
        "h.11:w": "h.11 / w /",
    }
    assert shown_names(["a.01:w", "a.1:w"]) == {}
