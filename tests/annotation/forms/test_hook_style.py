"""start and stop, nested, interleaved and unmatched; metadata mode."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from conftest import Traced
from perfetto.trace_file import LANE

from dftrace_ai import ai, dftracer
from dftrace_ai.annotation.node import ProfilerNode


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


def test_numbers_in_a_start_need_no_python(traced: Traced) -> None:
    """A hook that runs in every step: no frame of Python between it and the span."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else "a call")

    with traced() as rec:
        ai.compute.forward.start(step=0)
        ai.compute.forward.stop()
        sys.setprofile(note)
        try:
            ai.compute.forward.start(step=1, microbatch=2)
            ai.compute.forward.stop()
            ai.compute.forward.start()
            ai.compute.forward.stop()
        finally:
            sys.setprofile(None)
    assert calls == []
    found = [e.user for e in rec.trace.named("forward", "compute")]
    assert found == [{"step": 0}, {"step": 1, "microbatch": 2}, {}]


def off() -> ProfilerNode:
    node = ai.compute.forward.derive("off")
    node.disable()
    return node


class Named(ProfilerNode):
    """A kind of node of the user's."""


class Counting(ProfilerNode):
    """One that does something of its own when a span starts."""

    started = 0

    def start(self, *args: Any, **given: Any) -> None:
        self.started += 1
        super().start(*args, **given)


KINDS: dict[str, Callable[[], Any]] = {
    "of the tree": lambda: ai.compute.forward,
    "below it": lambda: ai.compute.forward.derive("below"),
    "disabled": off,
    "always on": lambda: off()(enable=True),
    "with arguments": lambda: ai.compute.forward(step=7, text="a", loss=0.5),
    "in ranges": lambda: ai.compute.forward(nvtx=True),
    "in marks": lambda: ai.compute.forward(metadata=True),
    "a class of its own": lambda: Named("mine", "named"),
    "with a start of its own": lambda: Counting("mine", "counting"),
}


GIVEN: list[dict[str, Any]] = [
    {},
    {"step": 1},
    {"epoch": 1, "image_size": 2, "microbatch": -3},
    {"step": None, "epoch": 2},
    {"count": 4},
    {"step": 2**80},
    {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
    {"step": True},
    {"step": 3, "text": "b"},
]
SWITCHES: list[dict[str, Any]] = [{}, {"metadata": False}, {"enable": True}, {"enable": False}]


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_with_numbers_is_one_with_args(traced: Traced, kind: str) -> None:
    """What is read natively has the line of what goes through Python."""
    recorded = 0
    with traced() as rec:
        node = KINDS[kind]()
        for given in GIVEN:
            told = {key: value for key, value in given.items() if value is not None}
            for switch in SWITCHES:
                for same in (given, {"args": told}):
                    node.update(phase=1)
                    node.start(**same, **switch)
                    node.update(phase=2)
                    node.stop()
                recorded += switch.get("enable", node.enabled)
    if kind == "in marks":
        assert rec.trace.spans == []
        assert len(rec.trace.marks) == 4 * len(GIVEN) * len(SWITCHES)
        assert rec.trace.footer["unmatched_stops"] == 0
    else:
        lines = [list(e.user.items()) for e in rec.trace.spans]
        assert lines[::2] == lines[1::2]
        assert len(lines) == 2 * recorded
        # What is switched off for one start is not open when its node is stopped.
        assert rec.trace.footer["unmatched_stops"] == (2 * len(GIVEN) if node.enabled else 0)
    calls = 2 * len(GIVEN) * len(SWITCHES)
    assert getattr(node, "started", 0) == (calls if kind == "with a start of its own" else 0)


def test_starts_with_numbers_in_tasks_and_around_each_other(traced: Traced) -> None:
    async def work(n: int) -> None:
        ai.compute.forward.start(step=n)
        await asyncio.sleep(0)
        ai.compute.forward.start(step=n + 10)
        await asyncio.sleep(0)
        ai.compute.forward.stop()
        ai.compute.forward.stop()

    async def both() -> None:
        await asyncio.gather(work(0), work(1))

    with traced() as rec:
        asyncio.run(both())
    steps = {e.user["step"]: e for e in rec.trace.spans}
    assert sorted(steps) == [0, 1, 10, 11]
    for n in (0, 1):
        assert rec.trace.parent(steps[n + 10]) is steps[n]


@pytest.mark.parametrize("name", ["start", "stop", "update"])
def test_the_methods_are_those_of_a_class(name: str) -> None:
    method = getattr(ProfilerNode, name)
    assert pickle.loads(pickle.dumps(method)) is method
    assert copy.deepcopy(method) is method
    assert (method.__name__, method.__qualname__) == (name, f"ProfilerNode.{name}")
    assert method.__doc__
    assert next(iter(inspect.signature(method).parameters)) == "self"
    bound = pickle.loads(pickle.dumps(getattr(ai.compute.forward, name)))
    assert bound == getattr(ai.compute.forward, name)


def test_what_a_start_or_stop_refuses() -> None:
    node = ai.compute.forward
    for call in (
        lambda: node.start(1, 2),
        lambda: node.start(metadata=False, self=3),
        lambda: node.stop(step=1),
        lambda: node.stop(1, 2),
        lambda: ProfilerNode.start(),
        lambda: ProfilerNode.start(3, step=1),
        lambda: ProfilerNode.stop(None),
    ):
        with pytest.raises((TypeError, AttributeError)):
            call()
