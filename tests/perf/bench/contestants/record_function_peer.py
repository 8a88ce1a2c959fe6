"""torch.profiler.record_function, with and without a running profiler."""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bench.contestants.plain import function
from bench.spans.loops import Subject, call_loop, empty_loop, named_with_loop


class Contestant:
    """record_function.

    Args:
        mode: "profiled" runs torch.profiler on the CPU all along; "idle" runs no profiler.
        workdir: not used.
    """

    version = str(torch.__version__)

    def __init__(self, mode: str, workdir: str) -> None:
        del workdir
        self.profiler: Any = None
        if mode == "profiled":
            self.profiler = profile(activities=[ProfilerActivity.CPU])
            self.profiler.start()

    def subjects(self) -> dict[str, Subject]:
        """Return what can be timed, by name."""
        decorated: Any = record_function("forward")(function)
        return {
            "with": Subject(named_with_loop(record_function), empty_loop()),
            "call": Subject(call_loop(decorated), call_loop(function)),
        }

    def settle(self) -> None:
        """Do nothing: the profiler keeps its events in memory."""

    def close(self) -> dict[str, int]:
        """Leave the profiler as it is: turning its events into a trace takes long, for nothing."""
        return {}
