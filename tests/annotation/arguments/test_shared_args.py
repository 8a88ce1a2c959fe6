"""An update makes one set of arguments for all nodes that had the same, and text of it once."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
from conftest import Traced

from dftrace_ai import ai

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


def test_nodes_made_of_others_go_their_own_ways(traced: Traced) -> None:
    with traced() as rec:
        ai.update(step=1)
        derived = ai.compute.forward.derive("derived_of_shared")
        apart = ai.compute.forward(args={"only": "here"})
        ai.update(step=2)
        pass_through(derived, apart)
        derived.update(more=True)
        ai.compute.forward.reset()
        pass_through(derived, apart, ai.compute.forward, ai.data.item)
    assert [e.user for e in rec.trace.spans] == [
        {"step": 2},
        {"step": 1, "only": "here"},
        {},
        {"step": 1, "only": "here"},
        {},
        {"step": 2},
    ]


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
