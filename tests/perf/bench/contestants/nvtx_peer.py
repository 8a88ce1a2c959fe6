"""nvtx annotations; no profiler listens, so this is the cost of asking."""

from __future__ import annotations

from importlib.metadata import version

import nvtx

from bench.contestants.plain import function
from bench.spans.loops import Subject, call_loop, empty_loop, named_with_loop, with_loop


class Contestant:
    """nvtx without a profiler attached."""

    version = version("nvtx")

    def __init__(self, mode: str, workdir: str) -> None:
        del mode, workdir

    def subjects(self) -> dict[str, Subject]:
        """Return what can be timed, by name."""
        decorated = nvtx.annotate("forward")(function)
        return {
            "with": Subject(named_with_loop(nvtx.annotate), empty_loop()),
            "shared_with": Subject(with_loop(nvtx.annotate("forward")), empty_loop()),
            "call": Subject(call_loop(decorated), call_loop(function)),
        }

    def settle(self) -> None:
        """Do nothing: nvtx records nothing."""

    def close(self) -> dict[str, int]:
        """Return nothing: there is nothing to close."""
        return {}
