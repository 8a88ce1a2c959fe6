"""Timed inner loops: each takes a number of iterations and returns the nanoseconds they took."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any

Loop = Callable[[int], int]

# What a body names comes in as a default argument: the quickest that Python looks up.
LOOP = """
def run(n, *, {names}):
    start = clock()
    for i in {items}:
        {body}
    return clock() - start
"""


WITH = "with {}:\n    pass"


@dataclass(frozen=True)
class Subject:
    """A loop to time and the loop whose cost is taken off."""

    loop: Loop
    baseline: Loop
    block_ns: int = 1_000_000  # how long one timed block should last
    pairs: int = 5  # blocks of baseline and loop, in turn, in one round


def timed(
    body: str,
    items: str = "repeat(None, n)",
    clock: Callable[[], int] = perf_counter_ns,
    **names: Any,
) -> Loop:
    """A loop on a code object of its own: bytecode is specialised in place, so that contestants with one
    code object would spoil each other's inline caches."""
    given = {"clock": clock, "repeat": repeat, **names}
    text = "\n        ".join(body.splitlines())
    defined: dict[str, Any] = {**given}
    taken = ", ".join(f"{name}={name}" for name in given)
    exec(LOOP.format(names=taken, items=items, body=text), defined)
    loop: Loop = defined["run"]
    return loop


def empty_loop() -> Loop:
    return timed("pass")


def with_loop(context: Any, **how: Any) -> Loop:
    """Enter and leave one shared context manager."""
    return timed(WITH.format("context"), context=context, **how)


def named_with_loop(make: Callable[[str], Any]) -> Loop:
    """Make a context manager from a name each time, enter and leave it."""
    return timed(WITH.format("make(name)"), make=make, name="forward")


def call_loop(function: Callable[[Any], Any]) -> Loop:
    return timed("function(argument)", function=function, argument=object())


def iterate_loop(wrap: Callable[[Any], Any]) -> Loop:
    """Go through a wrapped iterable of n items."""
    return timed("pass", "wrap(repeat(None, n))", wrap=wrap)


def tree_subjects(ai: Any, function: Callable[[Any], Any]) -> dict[str, Subject]:
    """What can be timed of a tree of nodes, ours or pydftracer's."""
    node, compute = ai.compute.forward, ai.compute
    step = [WITH.format(name) for name in ("fetch", "move", "forward", "backward", "update")]
    nodes = {"fetch": ai.dataloader.fetch, "move": ai.device.transfer, "forward": node}
    nodes |= {"backward": compute.backward, "update": compute.step}
    empty = empty_loop()
    return {
        "with": Subject(with_loop(node), empty),
        "walked_with": Subject(timed(WITH.format("ai.compute.forward"), ai=ai), empty),
        "call": Subject(call_loop(node(function)), call_loop(function)),
        "start_stop": Subject(timed("node.start()\nnode.stop()", node=node), empty),
        "step_with": Subject(timed(WITH.format("node(step=i)"), "range(n)", node=node), empty),
        "iter": Subject(iterate_loop(ai.dataloader.fetch.iter), iterate_loop(iter)),
        "update": Subject(timed("ai.update(epoch=1, step=i)", "range(n)", ai=ai), empty),
        "training_step": Subject(
            timed("\n".join(["ai.update(epoch=1, step=i)", *step]), "range(n)", ai=ai, **nodes),
            empty,
        ),
        **threaded(lambda: with_loop(node)),
    }


def peer_subjects(
    make: Callable[[str], Any], decorated: Callable[[Any], Any]
) -> dict[str, Subject]:
    """What can be timed of a library that makes a span from a name, and of a function it decorates."""
    return {
        "with": Subject(named_with_loop(make), empty_loop()),
        "call": Subject(call_loop(decorated), call_loop(function)),
    }


def function(argument: Any) -> Any:
    """The function that every contestant decorates."""
    return argument


def threaded(make: Callable[[], Loop]) -> dict[str, Subject]:
    """The same loop on one thread and on eight, whose iterations they share."""
    return {
        f"threads_{threads}": Subject(
            _threaded_loop(threads, make),
            _threaded_loop(threads, empty_loop),
            block_ns=50_000_000,
            pairs=1,
        )
        for threads in (1, 8)
    }


def _threaded_loop(threads: int, make: Callable[[], Loop]) -> Loop:
    def run(n: int) -> int:
        barrier = threading.Barrier(threads)
        starts: list[int] = []
        ends: list[int] = []

        def work() -> None:
            loop = make()
            loop(10)  # what is set up once per thread is not counted
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
