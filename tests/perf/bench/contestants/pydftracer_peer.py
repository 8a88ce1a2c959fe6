"""pydftracer with dftracer's compiled logger: recording, or with DFTRACER_ENABLE unset."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from dftracer.python import ai, dftracer

from bench.contestants.plain import function
from bench.spans.loops import (
    Subject,
    call_loop,
    empty_loop,
    iterate_loop,
    start_stop_loop,
    step_with_loop,
    threaded_loop,
    training_step_loop,
    update_loop,
    walked_with_loop,
    with_loop,
)


class Contestant:
    """pydftracer; the driver sets its environment ("on" or "off") before it starts.

    Args:
        mode: "on" or "off".
        workdir: directory that takes the trace.
    """

    version = f"{version('pydftracer')} (dftracer {version('dftracer')})"

    def __init__(self, mode: str, workdir: str) -> None:
        del mode
        self.log = dftracer.initialize_log(str(Path(workdir) / "pydftracer"), None, -1)
        ai.update(epoch=1, step=2)

    def subjects(self) -> dict[str, Subject]:
        """Return what can be timed, by name."""
        node: Any = ai.compute.forward
        empty = empty_loop()

        def threaded(threads: int) -> Subject:
            return Subject(
                threaded_loop(threads, lambda: with_loop(node)),
                threaded_loop(threads, empty_loop),
                block_ns=50_000_000,
                pairs=1,
            )

        return {
            "with": Subject(with_loop(node), empty),
            "walked_with": Subject(walked_with_loop(ai), empty),
            "call": Subject(call_loop(node(function)), call_loop(function)),
            "start_stop": Subject(start_stop_loop(node), empty),
            "step_with": Subject(step_with_loop(node), empty),
            "iter": Subject(iterate_loop(ai.dataloader.fetch.iter), iterate_loop(iter)),
            "update": Subject(update_loop(ai), empty),
            "training_step": Subject(training_step_loop(ai), empty),
            "threads_1": threaded(1),
            "threads_8": threaded(8),
        }

    def settle(self) -> None:
        """Do nothing: pydftracer writes on the calling thread."""

    def close(self) -> dict[str, int]:
        """End the trace."""
        self.log.finalize()
        return {}
