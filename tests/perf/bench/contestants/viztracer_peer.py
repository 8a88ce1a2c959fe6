"""viztracer's own annotations: log_event as a context manager and the @log_sparse decorator."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from viztracer import VizTracer, log_sparse

from bench.contestants.plain import function
from bench.spans.loops import Subject, call_loop, empty_loop, named_with_loop


class Contestant:
    """viztracer with sparse logging: only what is annotated is recorded."""

    version = version("viztracer")

    def __init__(self, mode: str, workdir: str) -> None:
        del mode, workdir
        # Not started: in sparse mode the decorator records only while the full tracer is off.
        self.tracer: Any = VizTracer(log_sparse=True, verbose=0)

    def subjects(self) -> dict[str, Subject]:
        """Return what can be timed, by name."""
        return {
            "with": Subject(named_with_loop(self.tracer.log_event), empty_loop()),
            "call": Subject(call_loop(log_sparse(function)), call_loop(function)),
        }

    def settle(self) -> None:
        """Do nothing: viztracer keeps its events in memory."""

    def close(self) -> dict[str, int]:
        """Return nothing: no trace is saved."""
        return {}
