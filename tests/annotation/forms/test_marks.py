"""Instants, counters and flow arrows."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest
from conftest import Traced
from perfetto.engine import Slice, View

from dftrace_ai import ai, dft_fn


def test_instants_lie_in_the_open_span(traced: Traced) -> None:
    with traced() as rec:
        ai.instant("outside")
        with ai.pipeline.train:
            ai.instant("nan found", args={"layer": "conv1", "n": 3})
            with ai.compute.forward:
                ai.instant("deep")
    t = rec.trace
    assert t.tree() == [
        ["outside", []],
        ["train", [["nan found", []], ["forward", [["deep", []]]]]],
    ]
    assert {e.cat for e in t.of("i")} == {"instant"}
    assert t.one("nan found").user == {"layer": "conv1", "n": 3}
    drawn = rec.perfetto.named("deep")[0]
    assert drawn.dur_ns == 0
    up = rec.perfetto.parent(drawn)
    assert up is not None
    assert up.name == "forward"


def test_counters(traced: Traced) -> None:
    with traced() as rec:
        for i in range(5):
            with ai.compute.step:
                ai.counter("training", values={"loss": 1 / (i + 1), "lr": 0.1, "seen": i * 32})
        ai.counter("big", values={"n": 2**53, "neg": -2.5, "flag": True})
    t = rec.trace
    samples = t.named("training")
    assert [e.args for e in samples] == [
        {"loss": 1 / (i + 1), "lr": 0.1, "seen": i * 32} for i in range(5)
    ]
    tracks: dict[str, list[float]] = {}
    for c in rec.perfetto.counters:
        tracks.setdefault(c.track, []).append(c.value)
    assert tracks["training loss"] == [1 / (i + 1) for i in range(5)]
    assert tracks["training seen"] == [i * 32 for i in range(5)]
    assert tracks["big n"] == [2**53]
    assert tracks["big neg"] == [-2.5]
    assert tracks.get("big flag", [1]) == [1]
    assert [e.tid for e in samples] == [e.tid for e in t.named("step")]


def test_values_that_are_no_finite_number_are_left_out_and_counted(traced: Traced) -> None:
    nan, inf = float("nan"), float("inf")
    wrong: list[Any] = [nan, inf, -inf, "text", None, [1], object(), 10**400]
    with traced() as rec:
        for bad in wrong:
            ai.counter("c", values={"bad": bad, "good": 1.5})
            ai.counter("only", values={"bad": bad})
        ai.counter("none", values={})
        ai.counter("loss", 3.0)
        ai.counter("steps", 7)
        ai.counter("nothing", None)  # type: ignore[arg-type]
    t = rec.trace
    found = [(e.name, e.args) for e in t.of("C") if e.args]
    numbers = [("loss", {"value": 3.0}), ("steps", {"value": 7})]
    assert found == [("c", {"good": 1.5})] * len(wrong) + numbers
    assert len(rec.perfetto.counters) == len(found)
    assert t.footer["args_sanitised"] == 2 * len(wrong) + 1


def test_small_numbers_are_written_so_that_perfetto_reads_them_right(traced: Traced) -> None:
    """Its reader overflows at 20 digits behind the point: 0.00030000000000000003 is 0.0038 there."""
    rates = [0.1 * 0.003, 1e-4 / 3 * 4, 0.00099999999999999991, -2 / 3000, 1e-5 / 3, 1 / 3, 0.001]
    with traced() as rec:
        for rate in rates:
            ai.counter("lr", values={"lr": rate})
            with ai.compute.step(args={"lr": rate, "deep": [rate]}):
                pass
    t = rec.trace
    assert [e.args["lr"] for e in t.named("lr")] == rates
    assert [e.user for e in t.named("step")] == [{"lr": r, "deep": [r]} for r in rates]
    assert [c.value for c in rec.perfetto.counters] == pytest.approx(rates, rel=1e-15)


def bound(view: View, slice_id: int) -> Slice:
    """The span at an arrow's end; a marker written only to hold the arrow stands for its span."""
    s = view.by_id[slice_id]
    if s.cat == "flow":
        up = view.parent(s)
        assert up is not None
        return up
    return s


def arrows(view: View) -> list[tuple[str, str]]:
    """(from, to) by span name, in time order of the source."""
    ends = [(bound(view, f.slice_out), bound(view, f.slice_in)) for f in view.flows]
    return [(a.name, b.name) for a, b in sorted(ends, key=lambda p: p[0].ts_ns)]


def test_an_arrow_between_threads(traced: Traced) -> None:
    items: queue.Queue[int] = queue.Queue()

    def consume() -> None:
        for _ in range(3):
            i = items.get()
            with ai.compute.forward(step=i):
                ai.compute.forward.flow_in(f"batch-{i}")

    with traced() as rec:
        thread = threading.Thread(target=consume)
        thread.start()
        for i in range(3):
            with ai.data.item(step=i):
                ai.data.item.flow_out(f"batch-{i}")
                items.put(i)
        thread.join()
    assert arrows(rec.perfetto) == [("item", "forward")] * 3
    pairs = {
        (bound(rec.perfetto, f.slice_out).arg["step"], bound(rec.perfetto, f.slice_in).arg["step"])
        for f in rec.perfetto.flows
    }
    assert pairs == {(0, 0), (1, 1), (2, 2)}
    assert rec.trace.footer["flows"] == 6


def send_to_a_waiting_consumer() -> None:
    """The consumer's span opens before the producer's; both have children and instants before."""
    ready, consumer_open = threading.Event(), threading.Event()

    def consume() -> None:
        with ai.dataloader.fetch:
            consumer_open.set()
            with ai.comm.receive:
                ready.wait()
            ai.instant("woken")
            ai.dataloader.fetch.flow_in(7)

    thread = threading.Thread(target=consume)
    thread.start()
    consumer_open.wait()
    with ai.data.item:
        with ai.data.preprocess:
            pass
        ai.instant("made")
        ai.data.item.flow_out(7)
        ready.set()
    thread.join()


def test_arrows_bind_to_the_span_they_are_called_in_whatever_came_before(traced: Traced) -> None:
    """Perfetto takes the slice that began last, ended or not, unless the writer sees to it.

    Version 52 also turns an arrow round when the slice at its end began before the other.
    """
    with traced() as rec:
        send_to_a_waiting_consumer()
        with ai.compute.forward:
            with ai.compute.step:
                pass
            ai.instant("made")
            ai.compute.flow_out("x")
        with ai.compute.backward:
            with ai.compute.step:
                pass
            ai.compute.flow_in("x")
    assert set(arrows(rec.perfetto)) == {("item", "fetch"), ("forward", "backward")}


def test_an_arrow_from_a_span_that_is_called_as_arrows_are(traced: Traced) -> None:
    span = dft_fn("flow", name="flow")
    with traced() as rec:
        with span:
            ai.comm.send.flow_out(1)
            with ai.compute.step:
                pass
        with ai.compute.forward:
            ai.comm.send.flow_in(1)
    # The instants are the ends of the arrow.
    assert rec.trace.tree() == [["flow", [["flow", []], ["step", []]]], ["forward", [["flow", []]]]]
    assert len(rec.perfetto.flows) == 1


def test_one_source_many_ends_and_key_types(traced: Traced) -> None:
    with traced() as rec:
        for key in ("a", 1, "1"):
            with ai.comm.bcast:
                ai.comm.bcast.flow_out(key)
            for _ in range(2):
                with ai.comm.receive:
                    ai.comm.receive.flow_in(key)
    assert arrows(rec.perfetto) == [("bcast", "receive")] * 6
    assert len({e.id for e in rec.trace.of("s")}) == 3


def test_flow_outside_any_span_and_marks_without_a_run_are_harmless(traced: Traced) -> None:
    ai.instant("x")
    ai.counter("x", values={"x": 1})
    ai.comm.send.flow_out(1)
    ai.comm.send.start(metadata=True)
    with traced() as rec:
        ai.comm.send.flow_out("x")
        ai.comm.receive.flow_in("nobody")
        with ai.comm.send:
            pass
    assert rec.trace.names["send"] == 1
