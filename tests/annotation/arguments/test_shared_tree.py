"""Threads that share a tree: each span has what its node has at its end, and the last write wins.

What the threads do is told one by one, so that all of it has one order, in which plain Python does
the same to a model of the tree.
"""

from __future__ import annotations

import enum
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import trace_files
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.trace_file import Trace, read

import dftrace_ai
from dftrace_ai import ai

# Arguments as they may be given, and how a line shows them.
NAMED = ("epoch", "step", "image_idx", "image_size")
RESERVED = ("level", "count")
KEYS = (*NAMED, *RESERVED, "microbatch", "loss", "phase", "a", "b", "metadata")


class Phase(enum.IntEnum):
    """An integer that is none of the exact ones."""

    WARM_UP = 3


numbers = st.integers(-3, 3) | st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, -(2**63)])
others = st.sampled_from([2**63, -(10**30), True, False, None, 0.5, "text", 'a "b"', Phase.WARM_UP])
scalars = st.one_of(numbers, numbers, numbers, others)
nested = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "level", "it's"]), inner, max_size=2)
    ),
    max_leaves=4,
)
values = st.one_of(scalars, scalars, nested)
some_arguments = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)
few_numbers = st.dictionaries(st.sampled_from(KEYS[:3]), numbers, min_size=1, max_size=2)
arguments = st.one_of(few_numbers, few_numbers, some_arguments)


def merged(given: Mapping[str, object]) -> dict[str, object]:
    """What a call gives: its named arguments first, and none of those that are None."""
    named = {k: given[k] for k in NAMED if given.get(k) is not None}
    return {**named, **{k: v for k, v in given.items() if k not in NAMED}}


def shown(args: Mapping[str, object]) -> str:
    """The members of a line, in order, with what tells a number from a text or a truth value."""
    renamed = {k + "_" * (k in RESERVED): as_json(v) for k, v in args.items()}
    return json.dumps(renamed)


def as_json(value: object, *, in_list: bool = False) -> object:
    """A value as a line has it."""
    if isinstance(value, dict):
        return {k: as_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [as_json(v, in_list=True) for v in value]
    if value is None and in_list:
        return "None"
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if -(2**63) < value < 2**63 else str(value)
    return value


# What the tree is to record: nodes, and what threads have open.
Wanted = list[tuple[str, str, "str | None", "int | None"]]
"""Of each span that has ended: its name, its arguments, its error, the number of its item."""


@dataclass(eq=False)
class NodeModel:
    """What a node has."""

    name: str
    args: dict[str, object] = field(default_factory=dict)
    enabled: bool = True
    below: dict[str, NodeModel] = field(default_factory=dict)

    def update(self, more: Mapping[str, object]) -> None:
        """Merge into the node and all below it."""
        self.args.update(more)
        for child in self.below.values():
            child.update(more)

    def reset(self) -> None:
        """Drop everything, here and below."""
        self.args.clear()
        for child in self.below.values():
            child.reset()

    def switch(self, enabled: bool) -> None:
        """Turn on or off, here and below."""
        self.enabled = enabled
        for child in self.below.values():
            child.switch(enabled)

    def derived(self, name: str) -> NodeModel:
        """Return the child, which begins with what this one has by now."""
        if name not in self.below:
            self.below[name] = NodeModel(f"{self.name}.{name}", dict(self.args), self.enabled)
        return self.below[name]

    def instance(self, given: Mapping[str, object], enable: bool | None) -> NodeModel:
        """Return what parentheses make: it follows nobody."""
        state = self.enabled if enable is None else enable
        return NodeModel(self.name, {**self.args, **merged(given)}, state)

    def ended(
        self, wanted: Wanted, part: str = "", error: str | None = None, count: int | None = None
    ) -> None:
        """Note a span that ends now."""
        wanted.append((self.name + part, shown(self.args), error, count))


class Block:
    """A `with` block or the call of a decorated function."""

    def __init__(self, node: NodeModel, wanted: Wanted) -> None:
        self.node, self.wanted = node, wanted
        self.is_open = node.enabled

    def leave(self, error: str | None) -> bool:
        """End it; return whether the thread is still in it."""
        if self.is_open:
            self.node.ended(self.wanted, error=error)
        return False


class Loop:
    """A loop through `.iter`.

    Args:
        node: whose.
        wanted: takes what ends.
        items: how many it has.
        stays: whether the thread is left in each wait for an item, too.
    """

    def __init__(self, node: NodeModel, wanted: Wanted, items: int, *, stays: bool = False) -> None:
        self.node, self.wanted, self.left, self.stays = node, wanted, items, stays
        self.count = 0
        self.recorded = self.waits = self.has_block = False

    def ask(self) -> bool:
        """Ask for the next item; return whether there is one, or is waited for."""
        self.end_block()
        self.recorded = self.node.enabled
        if not self.left:
            return False
        self.waits = True
        return self.stays or self.got()

    def got(self) -> bool:
        """Get it."""
        self.waits = False
        self.left -= 1
        self.count += 1
        if self.recorded:
            self.node.ended(self.wanted, ".iter", None, self.count)
        self.has_block = self.recorded
        return True

    def end_block(self) -> None:
        """End what is done with an item."""
        if self.has_block:
            self.node.ended(self.wanted, ".block", None, self.count)
        self.has_block = False

    def leave(self, error: str | None) -> bool:
        """End the wait or what is done with an item; return whether the thread is still in it."""
        if error is None:
            return self.got() if self.waits else self.ask()
        if not self.waits:
            self.end_block()
        elif self.recorded:
            self.node.ended(self.wanted, ".iter", error, self.count + 1)
        return False


LIMIT_S = 60
Order = Callable[["ToldThread"], object]


class Failed(Exception):
    """Ends a block from inside."""


class ToldThread(threading.Thread):
    """Does what `do` is given, which may call `stay` to be in a block until `leave` ends it.

    Whoever tells it waits until it has done so: what several of these do has one order.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._reports: SimpleQueue[BaseException | None] = SimpleQueue()
        self._over = False
        self.start()
        self._report()

    def run(self) -> None:
        """Do what is told until the outermost block is left."""
        try:
            self.stay()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._reports.put(error)

    def stay(self) -> None:
        """Do what is told, here, until it is to go on behind."""
        self._reports.put(None)
        while not self._over and (order := self._orders.get(timeout=LIMIT_S)) is not None:
            if order is _fail:
                raise Failed
            with suppress(Failed):
                order(self)
            self._reports.put(None)

    def staying(self, items: int) -> Iterator[int]:
        """Yield so many items, and stay before each."""
        for number in range(items):
            self.stay()
            yield number

    def do(self, order: Order | None) -> None:
        """Have it do something, and wait until it has, or is in the block that this opens."""
        self._orders.put(order)
        self._report()

    def leave(self, *, failing: bool = False) -> None:
        """Have it leave the innermost block."""
        self.do(_fail if failing else None)

    def end(self) -> None:
        """Have it leave all blocks, whatever is done in them otherwise."""
        self._over = True
        self._orders.put(None)
        self.join(LIMIT_S)

    def _report(self) -> None:
        report = self._reports.get(timeout=LIMIT_S)
        if report is not None:
            raise report


def _fail(_: ToldThread) -> None:
    """Stands for an order to fail."""


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
