"""Intervals of streams: where they lie, in which order they come, and what goes wrong."""

from __future__ import annotations

import json
import logging
import threading

import pytest
from conftest import RunScript, Traced
from perfetto.trace_file import Event, Trace
from safety.commands import invoke

from device.stand_in import PROGRAM, StandIn, StandInEvent, StandInStream, now
from dftrace_ai import ai
from dftrace_ai.device import companions, intervals
from dftrace_ai.device.companions import use_clock

MS = 1_000_000


def on_device(trace: Trace) -> list[Event]:
    return [e for e in trace.spans if e.cat.startswith("gpu.")]


def tracks(trace: Trace) -> dict[int, str]:
    return {e.tid: e.args["name"] for e in trace.of("M") if e.name == "thread_name"}


def without_time(trace: Trace) -> list[str]:
    told = "spans without time on the device"
    return [str(e.args["value"]) for e in trace.of("M") if e.args.get("name") == told]


def test_an_interval_is_what_the_stream_did_from_the_beginning_of_the_span_to_its_end(
    traced: Traced, gpu: StandIn
) -> None:
    # Anchors of this clock are exact to what passes between two looks at the host's.
    gpu.rate = 1.0001
    began = {}
    with traced() as run:
        for step in range(3):
            ai.update(step=step)
            with ai.compute.forward(device=True):
                began[step] = gpu.default.end_ns
                gpu.default.launch(7 * MS)
                with ai.compute.forward.derive("layer")(device=True):
                    gpu.default.launch(2 * MS)
            with ai.comm.all_reduce(device=True, bytes=8):
                gpu.default.launch(MS)
    trace = run.trace
    base_ns = trace.header["time_base_us"] * 1000
    found = on_device(trace)
    assert {tracks(trace)[e.tid] for e in found} == {"GPU 0 stream 0"}
    assert {(e.cat, e.name) for e in found} == {
        ("gpu.compute", "forward"),
        ("gpu.compute", "forward.layer"),
        ("gpu.comm", "all_reduce"),
    }
    for step in range(3):
        forward, layer, reduce = (e for e in found if e.args["step"] == step)
        host = trace.by_id[forward.p_idx]
        assert (host.name, host.cat, host.args["step"]) == ("forward", "compute", step)
        assert trace.by_id[layer.p_idx].name == "forward.layer"
        # What the device needs for the work lies far behind the span of the host.
        assert [round(e.dur_ns / MS, 2) for e in (forward, layer, reduce) if e.dur_ns] == [9, 2, 1]
        assert (forward.args["device"], forward.args["stream"], reduce.args["bytes"]) == (0, 0, 8)
        assert forward.ts_ns is not None
        assert layer.ts_ns is not None
        assert reduce.ts_ns is not None
        # The bound holds, to what single precision leaves of the time since the anchor.
        error_ns = forward.args["error_us"] * 1000 + 500
        assert abs(forward.ts_ns + base_ns - began[step]) <= error_ns
        assert forward.ts_ns <= layer.ts_ns < layer.end_ns <= forward.end_ns <= reduce.ts_ns
    summed = json.loads(invoke("summary", trace.path, "--json").out)["spans"]
    assert {(row["cat"], row["name"]): row["count"] for row in summed}[
        "gpu.comm", "all_reduce"
    ] == 3
    # Perfetto has one slice in the other, on a track of that name.
    shown = [s for s in run.perfetto.slices if s.cat.startswith("gpu.")]
    assert sorted((s.name, s.depth) for s in shown) == sorted(
        [("forward", 0), ("forward.layer", 1), ("all_reduce", 0)] * 3
    )


def test_nothing_is_asked_of_the_device_but_for_whole_batches(
    traced: Traced, gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "LOOK_NS", 10**18)
    with traced(perfetto=False) as run:
        forward = ai.compute.forward(device=True)
        gpu.default.held = True
        with forward:
            pass
        gpu.calls.clear()
        for _ in range(intervals.BATCH - 2):
            with forward:
                pass
        assert "query" not in gpu.calls
        with forward:
            pass
        assert gpu.calls.count("query") == 1
        for _ in range(intervals.BATCH):
            with forward:
                pass
        assert gpu.calls.count("query") == 2
        gpu.default.held = False
        gpu.calls.clear()
        for _ in range(intervals.BATCH):
            with forward:
                pass
        made = gpu.calls.count("event")
        # The events of those that were told are used again.
        for _ in range(intervals.BATCH):
            with forward:
                pass
        assert gpu.calls.count("event") == made
    assert len(on_device(run.trace)) == 4 * intervals.BATCH
    assert not without_time(run.trace)


def test_a_process_that_is_killed_loses_what_its_device_was_asked_for_last(
    run_script: RunScript,
) -> None:
    outcome = run_script(
        PROGRAM
        + """
intervals.LOOK_NS = 0
dftrace_ai.initialize()
for _ in range(3):
    with ai.compute.forward(device=True):
        gpu.default.launch(1000)
gpu.default.held = True
with ai.compute.backward(device=True):
    pass
os.kill(os.getpid(), signal.SIGKILL)
""",
        status=None,
    )
    assert invoke("recover", outcome.folder).status == 0
    trace = outcome.trace()
    assert [e.name for e in on_device(trace)] == ["forward"] * 3
    assert {tracks(trace)[e.tid] for e in on_device(trace)} == {"GPU 0 stream 0"}
    assert len(trace.named("backward", "compute")) == 1


def test_streams_and_devices_pass_their_events_in_any_order(traced: Traced, gpu: StandIn) -> None:
    second, other = StandInStream(0), StandInStream(1)
    with traced(perfetto=False) as run:
        for stream in (gpu.default, second, other):
            gpu.stream = stream
            stream.held = True
            with ai.compute.forward(device=True):
                stream.launch(3 * MS)
                gpu.stream = other  # the end of a span goes where its beginning went
        other.held = second.held = gpu.default.held = False
    assert {(tracks(run.trace)[e.tid], e.dur_ns) for e in on_device(run.trace)} == {
        ("GPU 0 stream 0", 3 * MS),
        ("GPU 0 stream 1", 3 * MS),
        ("GPU 1 stream 1", 3 * MS),
    }
    assert len({e.device for e in gpu.side}) == 2  # each device has anchors of its own


def test_spans_of_threads_that_share_a_stream_overlap_on_tracks_beside_each_other(
    traced: Traced, gpu: StandIn
) -> None:
    entered, left = threading.Event(), threading.Event()

    def work() -> None:
        with ai.compute.backward(device=True):
            gpu.default.launch(MS)
            entered.set()
            left.wait()

    with traced() as run:
        thread = threading.Thread(target=work)
        with ai.compute.forward(device=True):
            gpu.default.launch(MS)
            thread.start()
            entered.wait()
        gpu.default.launch(MS)
        left.set()
        thread.join()
    names = {e.name: tracks(run.trace)[e.tid] for e in on_device(run.trace)}
    assert names == {"forward": "GPU 0 stream 0", "backward": "GPU 0 stream 0 2"}


def test_what_the_device_never_comes_to_is_counted_and_told(
    traced: Traced, gpu: StandIn, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "MOST_UNDER_WAY", 3)
    monkeypatch.setattr(companions, "SETTLE_LIMIT_S", 0.0)
    with traced(perfetto=False) as run:
        with ai.compute.forward(device=True):
            pass
        gpu.stream = StandInStream(0)
        gpu.stream.held = True
        for _ in range(5):
            with ai.compute.backward(device=True):
                pass
    assert [e.name for e in on_device(run.trace)] == ["forward"]
    assert without_time(run.trace) == ["5"]
    (told,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert told.startswith("5 spans have no time on the device: 3 for which it was not done")
    # The next run knows nothing of them.
    gpu.stream.held = False
    with traced(perfetto=False) as run, ai.compute.step:
        pass
    assert not on_device(run.trace)


@pytest.mark.parametrize("failing", ["event", "record", "query", "elapsed_time"])
def test_an_error_of_the_device_is_no_error_of_the_training(
    traced: Traced,
    gpu: StandIn,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
) -> None:
    monkeypatch.setattr(companions, "SETTLE_LIMIT_S", 0.0)
    with traced(perfetto=False) as run:
        with ai.compute.forward(device=True):
            pass
        gpu.failing = failing
        for _ in range(2 * intervals.BATCH):
            with ai.compute.backward(device=True):
                pass
    assert len(run.trace.named("backward", "compute")) == 2 * intervals.BATCH
    assert without_time(run.trace)
    told = [r.getMessage() for r in caplog.records]
    assert sum("told once and counted: RuntimeError" in line for line in told) == 1
    assert sum("no time on the device" in line for line in told) == 2


def test_a_captured_graph_has_no_events_of_ours_and_a_replay_is_one_span(
    traced: Traced, gpu: StandIn
) -> None:
    with traced(perfetto=False) as run:
        with ai.compute.forward(device=True):
            pass
        gpu.calls.clear()
        gpu.capturing = True
        with ai.compute.step(device=True):
            gpu.capturing = False
        gpu.capturing = True
        for _ in range(2 * intervals.BATCH):
            with ai.compute.backward(device=True):
                pass
        gpu.capturing = False
        # In another thread: there CUDA takes a look at an event for an error of the capture.
        gpu.begins()
        for _ in range(2 * intervals.BATCH):
            with ai.compute.backward(device=True):
                pass
        assert gpu.calls == []
        gpu.ends()
        with ai.compute.forward(device=True):  # a replay
            gpu.default.launch(MS)
    assert [e.name for e in on_device(run.trace)] == ["forward", "forward"]
    assert not without_time(run.trace)


def test_clocks_that_cannot_be_anchored_at_once_have_a_wide_bound(traced: Traced) -> None:
    gpu = StandIn()
    use_clock(gpu)
    gpu.sides_held = True
    with traced(perfetto=False) as run:
        with ai.compute.forward(device=True):
            begun = now()
            gpu.default.launch(MS)
        seen = now()
        assert len(gpu.side) == 2  # the next try is made on another stream
        for side in gpu.side:
            side.held = False
    use_clock(None)
    (interval,) = on_device(run.trace)
    assert interval.args["error_us"] * 2000 >= seen - begun
    assert interval.dur_ns == MS


def test_the_rate_of_the_clocks_is_measured() -> None:
    from dftrace_ai.device.intervals import Alignment

    gpu = StandIn(rate=1.00005)
    alignment = Alignment(gpu, 0)
    first = alignment.look(now())
    assert alignment.look(now()) is first  # it is not time yet
    # As if two seconds had passed.
    first.event.at_ns -= 2_000 * MS  # type: ignore[attr-defined]
    first.low_ns -= 2_000 * MS
    assert first.high_ns is not None
    first.high_ns -= 2_000 * MS
    second = alignment.look(now() + 1_000 * MS)
    assert second is not first
    ahead = StandInEvent(gpu)
    ahead.record(gpu.default)
    ahead.at_ns += 1_000 * MS
    at_ns, error_ns = alignment.host_ns(alignment.device_ns(second, ahead), second)
    # Without the rate it would be off by 50 us.
    assert abs(at_ns - ahead.at_ns) <= error_ns + 500
    assert error_ns < first.error_ns + 3 * second.error_ns + 20_000
