"""Random span trees on random threads come back as the same trees."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import trace_files
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.agreement import agree
from perfetto.trace_file import Event, Trace, read
from sampling import times

import dftrace_ai
from dftrace_ai import ai

NODES = {
    "compute": ai.compute,
    "forward": ai.compute.forward,
    "item": ai.data.item,
    "fetch": ai.dataloader.fetch,
    "all_reduce": ai.comm.all_reduce,
    "checkpoint.init": ai.checkpoint.init,
    "preprocess.collate": ai.data.preprocess.derive(name="collate"),
}
OWN_KEYS = {"hhash", "p_idx", "level", "error", "unfinished", "count"}


class Boom(Exception):
    """Ends a span from inside."""


@dataclass(frozen=True)
class Branch:
    """A span to be: which node, in which form, with what inside."""

    name: str
    form: str
    args: dict[str, Any]
    children: Sequence[Branch]

    @property
    def user(self) -> dict[str, Any]:
        """The arguments it should be recorded with."""
        given = self.args if self.form.endswith("args") else {}
        return {**given, **({"error": "Boom"} if self.form == "raise" else {})}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = (
    st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(texts.filter(lambda k: k not in OWN_KEYS), values, max_size=3)
FORMS = ["with", "with args", "decorator", "decorator args", "start", "raise"]
forms = st.sampled_from(FORMS)


def branches(children: st.SearchStrategy[list[Branch]]) -> st.SearchStrategy[Branch]:
    """One span above the given ones."""
    return st.builds(Branch, st.sampled_from(list(NODES)), forms, arguments, children)


trees = st.lists(
    st.recursive(
        branches(st.just([])),
        lambda inner: branches(st.lists(inner, max_size=4)),
        max_leaves=12,
    ),
    max_size=4,
)
runs = st.lists(trees, min_size=1, max_size=4).filter(any)


def perform(branch: Branch) -> None:
    """Runs the spans of a branch."""
    node = NODES[branch.name]
    inside: Callable[[], None] = lambda: [perform(c) for c in branch.children] and None  # noqa: E731
    if branch.form == "start":
        node.start()
        inside()
        node.stop()
    elif branch.form == "with":
        with node:
            inside()
    elif branch.form == "with args":
        with node(args=branch.args):
            inside()
    elif branch.form == "decorator":
        node(inside)()
    elif branch.form == "decorator args":
        node(args=branch.args)(inside)()
    else:
        try:
            with node:
                inside()
                raise Boom
        except Boom:
            return


def wanted(forest: Sequence[Branch]) -> list[Any]:
    """The trees as [name, args, children]."""
    return [[b.name, b.user, wanted(b.children)] for b in forest]


def found(trace: Trace, events: Sequence[Event]) -> list[Any]:
    """The recorded trees as [name, args, children]."""
    return [[e.name, e.user, found(trace, trace.children(e))] for e in events]


def record(folder: str, forests: Sequence[Sequence[Branch]], **config: Any) -> Trace:
    """Performs every forest on a thread of its own, all at once; reads the trace."""
    tids: list[int] = [0] * len(forests)
    gate = threading.Barrier(len(forests))

    def work(n: int) -> None:
        tids[n] = threading.get_native_id()
        gate.wait()
        for branch in forests[n]:
            perform(branch)
        gate.wait()

    with dftrace_ai.tracing(log_file=f"{folder}/t", **config):
        pool = [threading.Thread(target=work, args=(n,)) for n in range(len(forests))]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
    (path,) = trace_files(Path(folder))
    trace = read(path)
    roots = trace.children(None)
    for tid, forest in zip(tids, forests, strict=True):
        mine = found(trace, [e for e in roots if e.tid == tid])
        assert mine == wanted(forest)
    return trace


@pytest.mark.sampled
@settings(max_examples=times(60, 0.5))
@given(forests=runs)
def test_random_trees_come_back(forests: list[list[Branch]]) -> None:
    with TemporaryDirectory() as folder:
        agree(record(folder, forests))


def grown(rng: random.Random, depth: int) -> list[Branch]:
    """A random forest, a few hundred spans large."""
    return [
        Branch(
            rng.choice(list(NODES)),
            rng.choice(FORMS),
            {"n": rng.random(), "s": rng.choice(["a", 'b"', "c\\"]), "l": [rng.randrange(9)]},
            grown(rng, depth - 1) if depth and rng.random() < 0.8 else [],
        )
        for _ in range(rng.randrange(1, 5))
    ]


@pytest.mark.parametrize("seed", range(3))
def test_many_random_trees_in_one_trace(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    forests = [[b for _ in range(10) for b in grown(rng, 4)] for _ in range(4)]
    trace = record(str(tmp_path), forests, overflow="wait", write_buffer_bytes=4096)
    assert len(trace.spans) > 2000
    agree(trace)


RUNS = itertools.count()
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["start", "stop"]), st.sampled_from(list(NODES))), max_size=40
)


@pytest.mark.sampled
@settings(max_examples=times(60, 0.5))
@given(operations=OPERATIONS)
def test_any_order_of_starts_and_stops_is_shown(operations: list[tuple[str, str]]) -> None:
    """A stop ends the latest start of its node; what is left is unfinished; all are drawn."""
    fresh = f"r{next(RUNS)}"  # nodes of its own, so that no run sees what another left open
    nodes = {name: node.derive(name=fresh) for name, node in NODES.items()}
    open_of: dict[str, list[int]] = {name: [] for name in NODES}
    pairs: dict[int, int | None] = {}
    unmatched = 0
    with TemporaryDirectory() as folder:
        with dftrace_ai.tracing(log_file=f"{folder}/t"):
            ai.instant("begin")
            for at, (what, name) in enumerate(operations):
                if what == "start":
                    nodes[name].start()
                    open_of[name].append(at)
                    pairs[at] = None
                else:
                    nodes[name].stop()
                    if open_of[name]:
                        pairs[open_of[name].pop()] = at
                    else:
                        unmatched += 1
        trace = read(trace_files(Path(folder))[0])
        agree(trace)
    spans = trace.of("X", "B")
    assert [e.name for e in spans] == [
        f"{NODES[operations[at][1]].name}.{fresh}" for at in sorted(pairs)
    ]
    assert trace.footer["unmatched_stops"] == unmatched
    of_start = dict(zip(sorted(pairs), spans, strict=True))
    ends = sorted((stop, of_start[start]) for start, stop in pairs.items() if stop is not None)
    assert [e.ph for e in of_start.values()] == ["B" if pairs[a] is None else "X" for a in of_start]
    at_ns = [e.end_ns for _, e in ends]
    assert at_ns == sorted(at_ns)
