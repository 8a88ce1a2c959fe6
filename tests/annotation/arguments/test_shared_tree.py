"""Threads that share a tree: each span has what its node has at its end, and the last write wins.

What the threads do is told one by one, so that all of it has one order, in which plain Python does
the same to a model of the tree.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import trace_files
from given_values import arguments, merged
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.trace_file import Trace, read
from told_thread import Failed, ToldThread
from tree_model import Block, Loop, NodeModel, Wanted

import dftrace_ai
from dftrace_ai import ai

THREADS = 3
RUNS = itertools.count()
Pair = tuple[Any, NodeModel]


@dataclass(frozen=True)
class Move:
    """What a thread does, to which of the nodes that are known by then, with what."""

    what: str
    by: int
    which: int
    given: dict[str, object]
    enable: bool | None

    @property
    def in_parentheses(self) -> dict[str, object]:
        """The arguments where `metadata` is none of them."""
        return {k: v for k, v in self.given.items() if k != "metadata"}

    @property
    def options(self) -> dict[str, object]:
        """What stands in the parentheses."""
        state = {} if self.enable is None else {"enable": self.enable}
        return {**self.in_parentheses, **state}


class Stage:
    """Threads, the tree they share, and what is to be recorded of what they do.

    Args:
        own: what derived nodes of this stage alone are called.
    """

    def __init__(self, own: str) -> None:
        top = NodeModel(ai.name)
        self.known: list[Pair] = [(ai, top)]
        for above in (ai.compute.forward, ai.data.item):
            node = above.derive(own)
            top.below[node.name] = NodeModel(node.name)
            self.known.append((node, top.below[node.name]))
        self.shared: tuple[Any, Loop] | None = None
        self.threads = [ToldThread() for _ in range(THREADS)]
        self.inside: list[list[Block | Loop]] = [[] for _ in self.threads]
        self.started: list[list[tuple[Pair, NodeModel]]] = [[] for _ in self.threads]
        self.wanted: Wanted = []
        self.unmatched = 0

    def play(self, moves: Sequence[Move]) -> None:
        """Do the moves, and end what is open then."""
        try:
            for move in moves:
                getattr(self, f"_{move.what}")(move, *self.known[move.which % len(self.known)])
            self._let_go()
            for by in range(THREADS):
                while self.inside[by]:
                    self._go_on(by)
                while self.started[by]:
                    (node, model), _ = self.started[by][-1]
                    self._stop_by(by, node, model)
        finally:
            for thread in self.threads:
                thread.end()

    def _update(self, move: Move, node: Any, model: NodeModel) -> None:
        made: list[Any] = []
        self.threads[move.by].do(lambda _: made.append(node.update(**move.given)))
        assert made[0] is node
        model.update(merged(move.given))

    def _update_by_args(self, move: Move, node: Any, model: NodeModel) -> None:
        self.threads[move.by].do(lambda _: node.update(args=move.given, step=move.by))
        model.update({"step": move.by, **move.given})

    def _reset(self, move: Move, node: Any, model: NodeModel) -> None:
        self.threads[move.by].do(lambda _: node.reset())
        model.reset()

    def _disable(self, move: Move, node: Any, model: NodeModel) -> None:
        self.threads[move.by].do(lambda _: node.disable())
        model.switch(enabled=False)

    def _enable(self, move: Move, node: Any, model: NodeModel) -> None:
        self.threads[move.by].do(lambda _: node.enable())
        model.switch(enabled=True)

    def _derive(self, move: Move, node: Any, model: NodeModel) -> None:
        made: list[Any] = []
        self.threads[move.by].do(lambda _: made.append(node.derive(f"by{move.by}")))
        self.known.append((made[0], model.derived(f"by{move.by}")))

    def _keep(self, move: Move, node: Any, model: NodeModel) -> None:
        made: list[Any] = []
        self.threads[move.by].do(lambda _: made.append(node(**move.options)))
        self.known.append((made[0], model.instance(move.in_parentheses, move.enable)))

    def _with(self, move: Move, node: Any, model: NodeModel) -> None:
        def enter(thread: ToldThread) -> None:
            with node:
                thread.stay()

        self.threads[move.by].do(enter)
        self.inside[move.by].append(Block(model, self.wanted))

    def _with_given(self, move: Move, node: Any, model: NodeModel) -> None:
        def enter(thread: ToldThread) -> None:
            made = node(**move.options)
            with made as entered:
                assert entered is made
                thread.stay()

        self.threads[move.by].do(enter)
        made = model.instance(move.in_parentheses, move.enable)
        self.inside[move.by].append(Block(made, self.wanted))

    def _call(self, move: Move, node: Any, model: NodeModel) -> None:
        self.threads[move.by].do(lambda thread: node(thread.stay)())
        self.inside[move.by].append(Block(model, self.wanted))

    def _loop(self, move: Move, node: Any, model: NodeModel) -> None:
        def go(thread: ToldThread) -> None:
            for _ in node.iter(range(len(move.given))):
                thread.stay()

        loop = Loop(model, self.wanted, len(move.given))
        if loop.ask():
            self.inside[move.by].append(loop)
        self.threads[move.by].do(go)

    def _slow_loop(self, move: Move, node: Any, model: NodeModel) -> None:
        def go(thread: ToldThread) -> None:
            for _ in node.iter(thread.staying(len(move.given))):
                thread.stay()

        loop = Loop(model, self.wanted, len(move.given), stays=True)
        if loop.ask():
            self.inside[move.by].append(loop)
        self.threads[move.by].do(go)

    def _share_loop(self, move: Move, node: Any, model: NodeModel) -> None:
        self._let_go()
        made = node.iter(range(len(move.given)))
        self.shared = made, Loop(model, self.wanted, len(move.given))

    def _advance(self, move: Move, *_: object) -> None:
        if self.shared is not None:
            loop, model = self.shared
            self.threads[move.by].do(lambda _: next(loop, None))
            model.ask()

    def _let_go(self) -> None:
        if self.shared is not None:
            loop, model = self.shared
            self.threads[0].do(lambda _: loop.close())
            model.end_block()

    def _leave(self, move: Move, *_: object) -> None:
        self._go_on(move.by)

    def _fail(self, move: Move, *_: object) -> None:
        self._go_on(move.by, Failed.__name__)

    def _go_on(self, by: int, error: str | None = None) -> None:
        if self.inside[by]:
            self.threads[by].leave(failing=error is not None)
            if not self.inside[by][-1].leave(error):
                self.inside[by].pop()

    def _start(self, move: Move, node: Any, model: NodeModel) -> None:
        self.threads[move.by].do(lambda _: node.start(**move.options))
        shown = model
        if merged(move.in_parentheses) or move.enable is not None:
            shown = model.instance(move.in_parentheses, move.enable)
        if shown.enabled:
            self.started[move.by].append(((node, model), shown))

    def _stop(self, move: Move, node: Any, model: NodeModel) -> None:
        self._stop_by(move.by, node, model)

    def _stop_by(self, by: int, node: Any, model: NodeModel) -> None:
        self.threads[by].do(lambda _: node.stop())
        mine = self.started[by]
        for number in reversed(range(len(mine))):
            if mine[number][0][0] is node:
                mine.pop(number)[1].ended(self.wanted)
                return
        self.unmatched += model.enabled


KINDS = {
    "update": 6,
    "update_by_args": 2,
    "reset": 1,
    "disable": 1,
    "enable": 2,
    "derive": 2,
    "keep": 2,
    "with": 4,
    "with_given": 4,
    "call": 3,
    "loop": 2,
    "slow_loop": 2,
    "share_loop": 1,
    "advance": 3,
    "leave": 9,
    "fail": 2,
    "start": 3,
    "stop": 3,
}
some_moves = st.lists(
    st.builds(
        Move,
        st.sampled_from([kind for kind, often in KINDS.items() for _ in range(often)]),
        st.integers(0, THREADS - 1),
        st.integers(0, 9),
        arguments,
        st.sampled_from([None, None, None, True, False]),
    ),
    min_size=15,
    max_size=80,
)


def recorded(trace: Trace) -> Wanted:
    """The spans in the order of their ends."""
    found: Wanted = []
    for e in sorted(trace.spans, key=lambda e: e.end_ns):
        user = dict(e.user)
        error, count = user.pop("error", None), user.pop("count", None)
        found.append((e.name, json.dumps(user), error, count))
    return found


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    yield
    ai.enable()
    ai.reset()


@settings(max_examples=60, derandomize=True, database=None)
@given(moves=some_moves)
def test_the_last_write_wins_whoever_made_it(moves: list[Move]) -> None:
    ai.enable()
    ai.reset()
    with TemporaryDirectory() as folder:
        with dftrace_ai.tracing(log_file=f"{folder}/t", compression="none"):
            stage = Stage(f"shared{next(RUNS)}")
            stage.play(moves)
        files = [read(path) for path in trace_files(Path(folder))]
    assert [entry for trace in files for entry in recorded(trace)] == stage.wanted
    if files:
        assert files[0].footer["unmatched_stops"] == stage.unmatched
        assert files[0].footer["dropped"] == 0
