"""dftrace_ai itself: recording, each node with arguments of its own, switched off, or never begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dftrace_ai
from bench.contestants.plain import function
from bench.files.drain_module import drain_door
from bench.files.traces import footer
from bench.spans.loops import (
    Subject,
    call_loop,
    counter_loop,
    drain_loop,
    empty_loop,
    instant_loop,
    iterate_loop,
    start_stop_loop,
    step_with_loop,
    threaded_loop,
    training_step_loop,
    update_loop,
    walked_with_loop,
    with_loop,
)
from dftrace_ai import ai


def all_below(node: Any) -> Iterator[Any]:
    """Yield a node and all below it, each before those below it."""
    yield node
    for name, below in vars(node).items():
        if not name.startswith("_"):
            yield from all_below(below)


class Contestant:
    """dftrace_ai in one of its states.

    Args:
        mode: "on" records; "apart" does so where no two nodes have the same arguments; "off" is
            initialised and then disabled from the root; "inert" was never initialised.
        workdir: directory that takes the trace.
    """

    version = dftrace_ai.__version__

    def __init__(self, mode: str, workdir: str) -> None:
        self.mode = mode
        self.run: Any = None
        if mode != "inert":
            # The loops outrun any drain by far, so the spool must hold the burst of a round.
            self.run = dftrace_ai.initialize(
                log_file=Path(workdir) / "ours", spool_bytes=1 << 30, overflow="drop"
            )
        ai.update(epoch=1, step=2)
        if mode == "apart":
            for number, node in enumerate(all_below(ai)):
                node.update(args={"own": [number]})
        if mode == "off":
            ai.disable()

    def subjects(self) -> dict[str, Subject]:
        """Return what can be timed, by name."""
        node: Any = ai.compute.forward
        empty = empty_loop()
        bare = call_loop(function)
        items = iterate_loop(iter)

        def threaded(threads: int) -> Subject:
            return Subject(
                threaded_loop(threads, lambda: with_loop(node)),
                threaded_loop(threads, empty_loop),
                block_ns=50_000_000,
                pairs=1,
            )

        found = {
            "with": Subject(with_loop(node), empty),
            "walked_with": Subject(walked_with_loop(ai), empty),
            "call": Subject(call_loop(node(function)), bare),
            "start_stop": Subject(start_stop_loop(node), empty),
            "step_with": Subject(step_with_loop(node), empty),
            "iter": Subject(iterate_loop(ai.dataloader.fetch.iter), items),
            "update": Subject(update_loop(ai), empty),
            "training_step": Subject(training_step_loop(ai), empty),
            "instant": Subject(instant_loop(ai), empty),
            "counter": Subject(counter_loop(ai), empty),
            "threads_1": threaded(1),
            "threads_8": threaded(8),
        }
        if door := drain_door():
            found["drain_none"] = Subject(drain_loop(door, "none"), empty)
            found["drain_gzip"] = Subject(drain_loop(door, "gzip"), empty)
        return found

    def settle(self) -> None:
        """Do nothing: the drain thread works by itself."""

    def close(self) -> dict[str, int]:
        """End the run; return how many events the trace holds and how many were dropped."""
        if self.run is None:
            return {}
        dftrace_ai.finalize()
        if not self.run.path:
            return {"events": 0, "dropped": 0}
        counts = footer(Path(self.run.path))
        return {key: int(counts[key]) for key in ("events", "dropped", "waits", "drain_cpu_us")}
