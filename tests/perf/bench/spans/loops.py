"""Timed inner loops: each takes a number of iterations and returns the nanoseconds they took."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from types import FunctionType
from typing import Any

Loop = Callable[[int], int]
Context = AbstractContextManager[Any]


@dataclass(frozen=True)
class Subject:
    """A loop to time and the loop whose cost is taken off.

    Args:
        loop: what is measured.
        baseline: the same loop without the thing measured.
        block_ns: how long one timed block should last, nanoseconds.
        pairs: how many blocks of baseline and loop, in turn, make one round.
    """

    loop: Loop
    baseline: Loop
    block_ns: int = 1_000_000
    pairs: int = 5


def private(loop: Loop) -> Loop:
    """Return the loop on a code object of its own.

    The interpreter specialises bytecode in place, so contestants that share a code object would
    spoil each other's inline caches.
    """
    if not isinstance(loop, FunctionType):
        raise TypeError(f"a loop must be a plain function, not {type(loop).__name__}")
    return FunctionType(
        loop.__code__.replace(),
        loop.__globals__,
        loop.__name__,
        loop.__defaults__,
        loop.__closure__,
    )


def empty_loop() -> Loop:
    """Return a loop with nothing in it."""

    def run(n: int) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            pass
        return perf_counter_ns() - start

    return private(run)


def with_loop(context: Context) -> Loop:
    """Enter and leave one shared context manager."""

    def run(n: int, context: Context = context) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            with context:
                pass
        return perf_counter_ns() - start

    return private(run)


def named_with_loop(make: Callable[[str], Context]) -> Loop:
    """Make a context manager from a name each time, enter and leave it."""

    def run(n: int, make: Callable[[str], Context] = make, name: str = "forward") -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            with make(name):
                pass
        return perf_counter_ns() - start

    return private(run)


def step_with_loop(node: Callable[..., Context]) -> Loop:
    """Give the node a new step each time, enter and leave what it returns."""

    def run(n: int, node: Callable[..., Context] = node) -> int:
        start = perf_counter_ns()
        for i in range(n):
            with node(step=i):
                pass
        return perf_counter_ns() - start

    return private(run)


def call_loop(function: Callable[[Any], Any]) -> Loop:
    """Call a function of one argument."""

    def run(n: int, function: Callable[[Any], Any] = function) -> int:
        argument = object()
        start = perf_counter_ns()
        for _ in repeat(None, n):
            function(argument)
        return perf_counter_ns() - start

    return private(run)


def iterate_loop(wrap: Callable[[Iterable[Any]], Iterable[Any]]) -> Loop:
    """Go through a wrapped iterable of n items."""

    def run(n: int, wrap: Callable[[Iterable[Any]], Iterable[Any]] = wrap) -> int:
        start = perf_counter_ns()
        for _ in wrap(repeat(None, n)):
            pass
        return perf_counter_ns() - start

    return private(run)


def start_stop_loop(node: Any) -> Loop:
    """Start and stop one node by hand."""

    def run(n: int, node: Any = node) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            node.start()
            node.stop()
        return perf_counter_ns() - start

    return private(run)


def update_loop(root: Any) -> Loop:
    """Set epoch and step on a whole tree."""

    def run(n: int, root: Any = root) -> int:
        start = perf_counter_ns()
        for i in range(n):
            root.update(epoch=1, step=i)
        return perf_counter_ns() - start

    return private(run)


def training_step_loop(ai: Any) -> Loop:
    """One step's worth of annotation: the tree updated, then five spans."""

    def run(n: int, ai: Any = ai) -> int:
        fetch, move = ai.dataloader.fetch, ai.device.transfer
        forward, backward, update = ai.compute.forward, ai.compute.backward, ai.compute.step
        start = perf_counter_ns()
        for i in range(n):
            ai.update(epoch=1, step=i)
            with fetch:
                pass
            with move:
                pass
            with forward:
                pass
            with backward:
                pass
            with update:
                pass
        return perf_counter_ns() - start

    return private(run)


def walked_with_loop(ai: Any) -> Loop:
    """Enter a node that is looked up from the root each time."""

    def run(n: int, ai: Any = ai) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            with ai.compute.forward:
                pass
        return perf_counter_ns() - start

    return private(run)


def instant_loop(root: Any) -> Loop:
    """Record an instant without arguments."""

    def run(n: int, root: Any = root) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            root.instant("mark")
        return perf_counter_ns() - start

    return private(run)


def counter_loop(root: Any) -> Loop:
    """Record a counter with one value."""

    def run(n: int, root: Any = root) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            root.counter("loss", values={"loss": 0.5})
        return perf_counter_ns() - start

    return private(run)


def drain_loop(door: Callable[[int, str], Any], compression: str) -> Loop:
    """Hand made-up records to the native drain; for counting instructions."""

    def run(n: int) -> int:
        start = perf_counter_ns()
        door(n, compression)
        return perf_counter_ns() - start

    return run


def threaded_loop(threads: int, make: Callable[[], Loop]) -> Loop:
    """Share n iterations out among threads; the time is from the first start to the last end.

    Each thread runs a few iterations before the clock starts, so that what is set up once per
    thread is not counted.
    """

    def run(n: int) -> int:
        barrier = threading.Barrier(threads)
        starts: list[int] = []
        ends: list[int] = []

        def work() -> None:
            loop = make()
            loop(10)
            barrier.wait()
            starts.append(perf_counter_ns())
            loop(n // threads)
            ends.append(perf_counter_ns())

        crew = [threading.Thread(target=work) for _ in range(threads)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        return max(ends) - min(starts)

    return run
