"""An update makes one set of arguments for all nodes that had the same, and text of it once.

What is kept for that lets go of what it was given, and is whole in the spool of a process that is killed.
"""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
from conftest import RunScript, Traced

from dftrace_ai import ai
from dftrace_ai.spools.recovery import adopt_dead

NODES = (ai.compute.forward, ai.compute.backward, ai.data.item, ai.comm.all_reduce)


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    ai.reset()
    yield
    ai.reset()


class Told:
    """A value that says how often it was asked for its text, and does something meanwhile."""

    def __init__(self, text: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.text, self.meanwhile = text, meanwhile
        self.asked = 0

    def __str__(self) -> str:
        self.asked += 1
        self.meanwhile()
        return self.text


def pass_through(*nodes: object) -> None:
    for node in nodes:
        with node:  # type: ignore[attr-defined]
            pass


def test_a_value_is_asked_once_for_all_nodes(traced: Traced) -> None:
    value = Told("shown")
    with traced() as rec:
        ai.update(args={"value": value}, step=1)
        pass_through(*NODES)
        ai.compute.update(step=2)
        pass_through(*NODES)
    assert value.asked == 2
    seen = [(e.cat, e.user) for e in rec.trace.spans]
    one, two = {"value": "shown", "step": 1}, {"value": "shown", "step": 2}
    assert seen[:4] == [("compute", one), ("compute", one), ("data", one), ("comm", one)]
    assert seen[4:] == [("compute", two), ("compute", two), ("data", one), ("comm", one)]


def test_a_value_that_updates_the_tree_while_it_is_asked(traced: Traced) -> None:
    """The span has what it had when it asked; the next one has the news."""
    value = Told("old", lambda: ai.update(step=7))
    with traced() as rec:
        ai.update(args={"value": value}, step=1)
        span = ai.compute.forward._begin()
        ai.update(args={"value": "new"})
        assert span is not None
        span.end()
        ai.compute.update(args={"value": value})
        pass_through(ai.compute.backward, ai.compute.backward)
    forward, first, second = rec.trace.spans
    assert forward.user == {"value": "new", "step": 7}
    assert first.user["value"] == second.user["value"] == "old"
    assert second.user["step"] == 7


def test_two_threads_ask_at_once(traced: Traced) -> None:
    both, asked_in = threading.Barrier(2), set[int]()

    def meet() -> None:
        asked_in.add(threading.get_ident())
        both.wait(60)

    value = Told("met", meet)
    with traced() as rec:
        ai.update(args={"value": value})
        threads = [threading.Thread(target=pass_through, args=[n, n]) for n in NODES[:2]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        value.meanwhile = lambda: None
        pass_through(*NODES)
    assert len(asked_in) == 2
    assert [e.user for e in rec.trace.spans] == [{"value": "met"}] * 8
    assert value.asked == 2


def test_what_no_node_has_any_more_is_let_go(traced: Traced) -> None:
    with traced() as rec:
        values = []
        for step in range(300):
            value = Told(f"of step {step}")
            values.append(weakref.ref(value))
            ai.update(args={"value": value}, step=step)
            pass_through(*NODES)
        del value
        assert [v for v in values if v() is not None] == values[-1:]
        ai.reset()
        assert values[-1]() is None
        loop = Told("of a loop")
        gone, node = weakref.ref(loop), ai.compute.forward(args={"value": loop})
        loop.node = node  # type: ignore[attr-defined]
        del loop, node
        gc.collect()
        assert gone() is None
    shown = [e.user["value"] for e in rec.trace.spans]
    assert shown == [f"of step {step}" for step in range(300) for _ in NODES]


def test_no_object_is_kept_that_a_call_was_given(traced: Traced) -> None:
    """Neither the node of a `with`, nor what its node was updated with, outlives its use."""

    class Value:
        def __str__(self) -> str:
            return "shown"

    with traced() as rec:
        value = Value()
        gone = [weakref.ref(value)]
        ai.compute.update(args={"value": value}, step=1)
        with ai.compute.forward(step=2) as made:
            gone.append(weakref.ref(made))
        del value, made
        ai.compute.reset()
        assert [one() for one in gone] == [None, None]
        for epoch in range(3):
            ai.update(epoch=epoch)
            with ai.compute.forward(step=epoch) as made:
                made.me = made
            gone.append(weakref.ref(made))
        del made
        gc.collect()
        assert not any(one() for one in gone)
    assert [e.user for e in rec.trace.spans] == [
        {"value": "shown", "step": 2},
        *({"epoch": n, "step": n} for n in range(3)),
    ]


def test_what_is_not_finite_or_too_long_is_counted_as_often_as_it_is_stored(
    traced: Traced,
) -> None:
    """Numbers over such values are new snapshots, as each update is."""
    with traced(max_arg_bytes=64) as rec:
        ai.compute.update(loss=float("nan"), text="x" * 100)
        for step in range(3):
            with ai.compute.forward(step=step):
                pass
            with ai.compute.backward(step=step):
                pass
    seen = [e.user for e in rec.trace.spans]
    assert [e["step"] for e in seen] == [0, 0, 1, 1, 2, 2]
    assert {(e["loss"], e["text"]) for e in seen} == {("NaN", "x" * 64)}
    assert rec.trace.footer["args_sanitised"] == 6


def test_runs_and_limits_change_below_the_same_arguments(traced: Traced) -> None:
    ai.compute.update(text="x" * 100, step=0)
    kept = ai.compute.forward(step=1)
    for longest in (64, 1 << 20):
        with traced(max_arg_bytes=longest) as rec:
            for node in (kept, ai.compute.forward(step=1), ai.compute.forward(epoch=2)):
                with node:
                    pass
        text = "x" * min(longest, 100)
        assert [e.user for e in rec.trace.spans] == [
            {"text": text, "step": 1},
            {"text": text, "step": 1},
            {"text": text, "step": 0, "epoch": 2},
        ]


def test_killed_in_the_middle_of_calls(run_script: RunScript) -> None:
    """What has ended and what is open has its own numbers, in the rest that recovery writes."""
    done = run_script(
        """
        import os, signal, threading
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize(flush_interval_ms=60_000)
        ai.update(phase="train", step=-1)

        def work():
            for i in range(1500):
                with ai.data.item(step=i, worker=1):
                    pass

        thread = threading.Thread(target=work)
        thread.start()
        with ai.pipeline.epoch(epoch=4) as outer:
            for i in range(1500):
                with ai.compute.forward(step=i):
                    ai.compute.update(microbatch=i % 3)
                    with ai.compute.backward(epoch=1, step=i):
                        pass
            thread.join()
            ai.compute.step.start(step=7, microbatch=2)
            with ai.compute.backward(step=8):
                os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-signal.SIGKILL,
    )
    assert not adopt_dead(done.folder).failed
    trace = done.trace()
    common = {"phase": "train"}
    assert [e.user for e in trace.named("item")] == [
        {**common, "step": i, "worker": 1} for i in range(1500)
    ]
    ended = [e for e in trace.spans if e.name in ("forward", "backward")]
    forward = [e.user for e in ended if e.name == "forward"]
    assert forward == [
        {**common, "step": i, **({"microbatch": (i - 1) % 3} if i else {})} for i in range(1500)
    ]
    backward = [e.user for e in ended if e.name == "backward"]
    assert backward == [{**common, "step": i, "microbatch": i % 3, "epoch": 1} for i in range(1500)]
    still_open = {e.name: e.user for e in trace.of("B")}
    assert still_open == {
        "epoch": {**common, "step": -1, "epoch": 4, "unfinished": True},
        "step": {**common, "step": 7, "microbatch": 2, "unfinished": True},
        "backward": {**common, "step": 8, "microbatch": 2, "unfinished": True},
    }
