"""Limits that the documentation names are there; one that has gone must leave the page."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path

import pytest
from conftest import RunScript, Traced

from dftrace_ai import ai
from docs.pages import DOCS

PAGE = DOCS / "limitations.md"


def test_nodes_come_back_as_the_node_at_their_place() -> None:
    derived = ai.data.preprocess.derive("collate")
    for node in (ai, ai.compute.forward, ai.data.io.open, ai.checkpoint.init, derived):
        for again in (copy.copy(node), copy.deepcopy(node), pickle.loads(pickle.dumps(node))):
            assert again is node
    own = ai.compute.forward(args={"a": 1}, enable=False)
    again = pickle.loads(pickle.dumps(own))
    assert (again.cat, again.name, again.enabled) == ("compute", "forward", False)


def test_a_decorated_function_is_no_function_object() -> None:
    @ai.compute.forward
    def forward(x: int, scale: float = 1.0) -> float:
        return x * scale

    assert not inspect.isfunction(forward)
    assert callable(forward)
    assert forward.__code__.co_name == "forward"
    assert list(inspect.signature(forward).parameters) == ["x", "scale"]
    assert inspect.getfullargspec(forward).args == ["x", "scale"]


def test_a_span_is_not_stopped_by_another_thread(traced: Traced) -> None:
    from threading import Thread

    with traced() as rec:
        ai.comm.send.start()
        thread = Thread(target=ai.comm.send.stop)
        thread.start()
        thread.join()
    (event,) = rec.trace.of("B")
    assert event.name == "send"
    assert rec.trace.footer["unmatched_stops"] == 1


COMPILE = """
import json
import torch
from dftrace_ai import ai, dft_fn, initialize

initialize()

@dft_fn("mine").log
def picks_up(x, step=1):
    return x * step

fetched = ai.dataloader.fetch.iter([1.0, 2.0])

def walks(x):
    for factor in fetched:
        x = x * factor
    return x

def updates(x):
    ai.update(step=1)
    return x + 1

def compiled(fn, fullgraph):
    torch._dynamo.reset()
    try:
        torch.compile(lambda x: fn(x), backend="eager", fullgraph=fullgraph)(torch.ones(2))
    except Exception as error:
        return type(error).__name__
    return "runs"

for fn in (picks_up, walks, updates):
    print(json.dumps([compiled(fn, fullgraph) for fullgraph in (False, True)]))
"""


def test_what_breaks_the_graph_does_as_the_table_says(run_script: RunScript) -> None:
    pytest.importorskip("torch")
    assert run_script(COMPILE).said == [["runs", "Unsupported"]] * 3


def test_limits_of_open_spans_are_those_of_the_spool() -> None:
    header = Path(DOCS.parent / "native" / "include" / "dftrace" / "spool" / "spool.hpp")
    text = header.read_text(encoding="utf-8")
    assert "max_open_spans = 240;" in text
    assert "max_open_task_spans = 120;" in text
    assert "more than 240 spans" in PAGE.read_text(encoding="utf-8")
    assert "or 120 in the tasks" in PAGE.read_text(encoding="utf-8")
