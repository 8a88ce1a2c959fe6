"""Times: exact to the nanosecond, strictly rising, children inside their parents."""

from __future__ import annotations

import time

from conftest import Traced
from perfetto.trace_file import Trace

from dftrace_ai import ai, dftracer

DAY_US = 86_400_000_000


def assert_nested(trace: Trace) -> None:
    """Every child begins after its parent and ends no later; siblings follow each other."""
    for parent in [None, *trace.spans]:
        at = -1 if parent is None else parent.ts_ns
        for child in trace.children(parent):
            assert at is not None
            assert child.ts_ns is not None
            first = at == -1 or (parent is not None and at == parent.ts_ns)
            assert child.ts_ns > at if first else child.ts_ns >= at
            at = child.end_ns
        if parent is not None:
            assert at is not None
            assert at <= parent.end_ns


def test_starts_rise_strictly_and_children_fit(traced: Traced) -> None:
    with traced() as rec:
        for _ in range(2000):
            with ai.pipeline.train, ai.compute.forward:
                with ai.compute.step:
                    pass
                with ai.comm.barrier:
                    pass
    starts = [e.ts_ns for e in rec.trace.spans]
    assert len(starts) == 8000
    assert len(set(starts)) == 8000
    assert_nested(rec.trace)


def test_file_order_never_decides_who_is_the_parent(traced: Traced) -> None:
    """Empty spans, wrapped as tightly as can be: no two slices begin and end together."""
    with traced() as rec:
        for _ in range(500):
            with ai.compute, ai.compute.forward, ai.compute.backward, ai.compute.step:
                pass
    assert rec.trace.tree() == 500 * [
        ["compute", [["forward", [["backward", [["step", []]]]]]]],
    ]


def test_relative_times_and_the_base_give_the_epoch(traced: Traced) -> None:
    with traced() as rec:
        before = dftracer.get_instance().get_time()
        with ai.compute.forward:
            pass
        after = dftracer.get_instance().get_time()
    header, span = rec.trace.header, rec.trace.one("forward")
    base = header["time_base_us"]
    assert type(base) is int
    assert base % (20 * DAY_US) == 0
    assert span.ts_ns is not None
    assert 0 <= span.ts_ns < 20 * DAY_US * 1000
    assert before - 1 <= base + span.ts_ns // 1000 <= after + 1
    assert abs(base + span.ts_ns / 1000 - time.time() * 1e6) < DAY_US
    assert header["timestamps"] == "relative"
    assert header["clock"] in ("tsc", "monotonic")


def test_epoch_microseconds(traced: Traced) -> None:
    with traced(timestamps="epoch_us") as rec:
        before = dftracer.get_instance().get_time()
        for _ in range(1000):
            with ai.pipeline.train, ai.compute.forward:
                pass
        ai.instant("here")
        ai.counter("loss", values={"loss": 1.0})
        after = dftracer.get_instance().get_time()
    t = rec.trace
    assert t.header["timestamps"] == "epoch_us"
    for e in t.of("X", "i", "C"):
        assert '"ts":' in e.line
        assert e.ts_ns is not None
        assert e.line.split('"ts":')[1].split(",")[0].isdigit()
        assert before - 1 <= e.ts_ns // 1000 <= after + 1
    for e in t.named("forward"):
        up = t.parent(e)
        assert up is not None
        assert up.ts_ns is not None
        assert e.ts_ns is not None
        assert up.ts_ns <= e.ts_ns
        assert e.end_ns <= up.end_ns


def test_depth_beyond_what_perfetto_draws_is_in_the_file(traced: Traced) -> None:
    @ai.compute.forward
    def recurse(n: int) -> int:
        return 0 if n == 0 else 1 + recurse(n - 1)

    with traced(perfetto=False) as rec:
        assert recurse(800) == 800
    assert [e.level for e in rec.trace.spans] == list(range(1, 802))
    assert_nested(rec.trace)


def test_recursion_and_the_same_node_in_itself(traced: Traced) -> None:
    @ai.data.item
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def shape(n: int) -> list[object]:
        return ["item", [] if n < 2 else [shape(n - 1), shape(n - 2)]]

    with traced() as rec:
        with ai.data.item, ai.data.item:
            pass
        assert fib(9) == 34
    assert rec.trace.tree() == [["item", [["item", []]]], shape(9)]
    assert_nested(rec.trace)


def test_many_events_all_arrive(traced: Traced) -> None:
    """More than the first ring segments hold: nothing dropped, order and parents kept."""
    with traced(overflow="wait", compression="none") as rec, ai.pipeline.train:
        for i in ai.pipeline.epoch.iter(range(20)):
            ai.update(epoch=i)
            for _ in range(1500):
                with ai.compute.forward:
                    pass
    t = rec.trace
    assert t.names == {"train": 1, "epoch.iter": 20, "epoch.block": 20, "forward": 30_000}
    assert t.footer["dropped"] == 0
    assert [e.user["epoch"] for e in t.named("forward")] == [i // 1500 for i in range(30_000)]
