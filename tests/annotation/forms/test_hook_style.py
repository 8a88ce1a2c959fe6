"""start and stop, nested, interleaved and unmatched; metadata mode."""

from __future__ import annotations

import threading

from conftest import Traced
from perfetto.trace_file import LANE

from dftrace_ai import ai, dftracer


def test_start_and_stop_are_a_span(traced: Traced) -> None:
    with traced() as rec:
        ai.pipeline.epoch.start()
        ai.update(step=3)
        ai.compute.start()
        with ai.compute.forward:
            pass
        ai.compute.stop()
        ai.pipeline.epoch.stop()
    t = rec.trace
    assert t.tree() == [["epoch", [["compute", [["forward", []]]]]]]
    assert t.one("compute").user == {"step": 3}


def test_the_same_node_started_twice_stops_inside_out(traced: Traced) -> None:
    with traced() as rec:
        for _ in range(3):
            ai.compute.step.start()
        for _ in range(3):
            ai.compute.step.stop()
    assert rec.trace.tree() == [["step", [["step", [["step", []]]]]]]


def test_interleaved_nodes_are_both_shown(traced: Traced) -> None:
    """A starts, B starts, A stops, B stops: Perfetto would drop one if both lay on one track."""
    with traced() as rec:
        ai.comm.send.start()
        ai.comm.receive.start()
        with ai.compute.step:
            pass
        ai.comm.send.stop()
        with ai.compute.forward:
            pass
        ai.comm.receive.stop()
        with ai.compute.backward:
            pass
    t = rec.trace
    send, receive = t.one("send"), t.one("receive")
    assert send.ts_ns is not None
    assert receive.ts_ns is not None
    assert send.ts_ns < receive.ts_ns < send.end_ns < receive.end_ns
    assert send.tid != receive.tid
    lanes = {e.tid for e in (send, receive) if e.tid >= LANE}
    assert lanes
    assert all(t.thread_names[lane] for lane in lanes)
    assert t.parent(t.one("step")) is receive
    assert t.parent(t.one("forward")) is receive
    assert t.one("backward").level == 1
    assert t.footer["unmatched_stops"] == 0


def test_long_chain_of_overlapping_spans(traced: Traced) -> None:
    """Each begins before its predecessor ends."""
    nodes = [ai.data.item.derive(name=f"n{i}") for i in range(20)]
    with traced() as rec:
        nodes[0].start()
        for before, after in zip(nodes, nodes[1:], strict=False):
            after.start()
            before.stop()
        nodes[-1].stop()
    t = rec.trace
    assert len(t.spans) == 20
    for a, b in zip(t.spans, t.spans[1:], strict=False):
        assert a.ts_ns is not None
        assert b.ts_ns is not None
        assert a.ts_ns < b.ts_ns < a.end_ns < b.end_ns


def test_stop_without_start_is_counted_and_harmless(traced: Traced) -> None:
    with traced() as rec:
        ai.compute.stop()
        with ai.pipeline.train:
            ai.compute.forward.stop()
            ai.compute.forward.stop()
            with ai.compute.step:
                pass
    t = rec.trace
    assert t.tree() == [["train", [["step", []]]]]
    assert t.footer["unmatched_stops"] == 3


def test_never_stopped_is_unfinished(traced: Traced) -> None:
    with traced() as rec:
        ai.pipeline.train.start()
        ai.pipeline.epoch.start()
        with ai.compute.step(step=4):
            pass
        ai.pipeline.epoch.stop()
    t = rec.trace
    train = t.one("train")
    assert (train.ph, train.args["unfinished"]) == ("B", True)
    assert t.tree() == [["train", [["epoch", [["step", []]]]]]]
    assert t.footer["unfinished"] == 1
    drawn = rec.perfetto.named("train")[0]
    assert drawn.dur_ns == -1


def test_a_node_left_open_by_one_run_starts_clean_in_the_next(traced: Traced) -> None:
    with traced() as one:
        ai.pipeline.train.start()
    with traced() as two:
        ai.pipeline.train.stop()
        with ai.compute.step:
            pass
    assert one.trace.footer["unfinished"] == 1
    assert two.trace.tree() == [["step", []]]
    assert two.trace.footer["unmatched_stops"] == 1


def test_levels_count_the_parents_also_where_spans_do_not_nest(traced: Traced) -> None:
    with traced() as rec:
        ai.comm.send.start()
        ai.comm.receive.start()
        ai.comm.send.stop()
        with ai.compute.forward, ai.compute.step:
            pass
        ai.comm.receive.stop()
    t = rec.trace
    for e in t.spans:
        up = t.parent(e)
        assert e.level == (up.level + 1 if up else 1), e


def test_stopped_by_another_thread(traced: Traced) -> None:
    """Hooks may fire anywhere: the start is kept, as a span or as unfinished, never lost."""
    with traced() as rec:
        ai.compute.start()
        thread = threading.Thread(target=ai.compute.stop)
        thread.start()
        thread.join()
        with ai.data.item:
            pass
    t = rec.trace
    kept = t.one("compute")
    assert kept.ph in "XB"
    assert t.footer["unmatched_stops"] == (1 if kept.ph == "B" else 0)
    assert t.names["item"] == 1


def test_parenthesised_start(traced: Traced) -> None:
    with traced() as rec:
        p = ai.compute.forward(step=1)
        p.start()
        p.stop()
    assert rec.trace.one("forward").user == {"step": 1}


def test_metadata_mode_writes_marks_at_once(traced: Traced) -> None:
    with traced() as rec:
        before = dftracer.get_instance().get_time()
        for _ in range(2):
            ai.pipeline.epoch.start(metadata=True)
            with ai.compute.forward:
                pass
            ai.pipeline.epoch.stop(metadata=True)
        after = dftracer.get_instance().get_time()
        ai.checkpoint.init.start(metadata=True)
    t = rec.trace
    assert [name for name, _ in t.marks] == [
        *("epoch.start", "epoch.end", "epoch.start", "epoch.end"),
        "checkpoint.init.start",
    ]
    times = [int(value) for _, value in t.marks]
    assert times == sorted(times)
    assert before <= times[0]
    assert times[3] <= after
    assert t.names == {"forward": 2}
    assert [e.level for e in t.named("forward")] == [1, 1]
    assert t.footer["metadata"] == 5
    for line in t.meta("CM"):
        assert (line.cat, line.args["hhash"]) == ("dftracer", t.header["hhash"])
        assert line.id is not None
    assert rec.perfetto.answer.clean
