"""Who takes part in the span benches: each makes the subjects that a process of its own times.

A contestant's library is imported by its function alone, since the peers' interpreter has not ours.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .loops import (
    Subject,
    call_loop,
    empty_loop,
    function,
    named_with_loop,
    peer_subjects,
    threaded,
    timed,
    tree_subjects,
    with_loop,
)

METRICS = 20


@dataclass(frozen=True)
class Contestant:
    """What a process times, and what it says when it ends."""

    subjects: dict[str, Subject]
    version: str = ""
    close: Callable[[], dict[str, int]] = dict


class EmptyContext:
    """The cheapest context manager that can be written in Python."""

    def __enter__(self) -> EmptyContext:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        return None


@dataclass
class TimedContext:
    """Two clock readings and an append: what one writes by hand before reaching for a tracer."""

    started_ns: int = 0
    spans: list[int] = field(default_factory=list)

    def __enter__(self) -> TimedContext:
        self.started_ns = time.time_ns()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.spans[:] = (time.time_ns() - self.started_ns,)


@contextmanager
def empty_generator(name: str) -> Iterator[None]:
    yield


def pass_through(wrapped: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate with nothing but a handing on of the call."""

    @functools.wraps(wrapped)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    return wrapper


def plain(mode: str, workdir: str) -> Contestant:
    """What Python itself costs."""
    empty = empty_loop()
    subjects = {
        "empty_class": Subject(with_loop(EmptyContext()), empty),
        "timed_class": Subject(with_loop(TimedContext()), empty),
        "nullcontext": Subject(with_loop(nullcontext()), empty),
        "contextmanager": Subject(named_with_loop(empty_generator), empty),
        "wrapper": Subject(call_loop(pass_through(function)), call_loop(function)),
        **threaded(lambda: with_loop(EmptyContext())),
    }
    return Contestant(subjects)


def all_below(node: Any) -> Iterator[Any]:
    """A node and all below it, each before those below it."""
    yield node
    for name, below in vars(node).items():
        if not name.startswith("_"):
            yield from all_below(below)


def ours(mode: str, workdir: str) -> Contestant:
    """dftrace_ai: "on" records; "apart" does so where no two nodes have the same arguments; "off" is
    initialised and then disabled from the root; "inert" was never initialised."""
    import dftrace_ai
    from bench.files.drain import drain_door
    from bench.files.traces import footer
    from dftrace_ai import ai

    run: Any = None
    if mode != "inert":
        # The loops outrun any drain by far, so the spool must hold the burst of a round.
        run = dftrace_ai.initialize(
            log_file=Path(workdir) / "ours", spool_bytes=1 << 30, overflow="drop"
        )
    ai.update(epoch=1, step=2)
    if mode == "apart":
        for number, node in enumerate(all_below(ai)):
            node.update(args={"own": [number]})
    if mode == "off":
        ai.disable()
    empty = empty_loop()
    counted = timed("root.counter('loss', values={'loss': 0.5})", root=ai)
    subjects = tree_subjects(ai, function) | {
        "instant": Subject(timed("root.instant('mark')", root=ai), empty),
        "counter": Subject(counted, empty),
    }
    # For counting instructions.
    if door := drain_door():
        for compression in ("none", "gzip"):
            drained = timed("door(n, compression)", "range(1)", door=door, compression=compression)
            subjects[f"drain_{compression}"] = Subject(drained, empty)

    def close() -> dict[str, int]:
        if run is None:
            return {}
        dftrace_ai.finalize()
        if not run.path:
            return {"events": 0, "dropped": 0}
        counts = footer(Path(run.path))
        return {key: int(counts[key]) for key in ("events", "dropped", "waits", "drain_cpu_us")}

    return Contestant(subjects, dftrace_ai.__version__, close)


def loggers(mode: str, workdir: str) -> Contestant:
    """`log_iter` to `local`, or to it, to the trace and to one in a process of its own."""
    from bench.loggers import trackers  # noqa: F401 - its trackers are known by this
    from dftrace_ai.loggers import make_loggers

    config = {"log_dir": workdir, "status_line": False, "queue": 10_000_000}
    names = ("local",) if mode == "local" else ("local", "trace", "quiet")
    made = make_loggers({name: {"config": config} for name in names})
    data = {f"metric{number}": number / 7 for number in range(METRICS)}
    return Contestant(
        {"log_iter": Subject(timed("log(data)", log=made.log_iter, data=data), empty_loop())}
    )


def pydftracer(mode: str, workdir: str) -> Contestant:
    """dftracer's compiled logger; its environment says whether it records."""
    from dftracer.python import ai, dftracer

    log = dftracer.initialize_log(str(Path(workdir) / "pydftracer"), None, -1)
    ai.update(epoch=1, step=2)

    def close() -> dict[str, int]:
        log.finalize()
        return {}

    told = f"{version('pydftracer')} (dftracer {version('dftracer')})"
    return Contestant(tree_subjects(ai, function), told, close)


def viztracer(mode: str, workdir: str) -> Contestant:
    """Sparse logging: only what is annotated is recorded."""
    from viztracer import VizTracer, log_sparse

    # Not started: in sparse mode the decorator records only while the full tracer is off.
    tracer: Any = VizTracer(log_sparse=True, verbose=0)
    subjects = peer_subjects(tracer.log_event, log_sparse(function))
    return Contestant(subjects, version("viztracer"))


def nvtx(mode: str, workdir: str) -> Contestant:
    """Without a profiler that listens: the cost of asking."""
    import nvtx as library

    subjects = peer_subjects(library.annotate, library.annotate("forward")(function))
    return Contestant(subjects, version("nvtx"))


def record_function(mode: str, workdir: str) -> Contestant:
    """torch's, where its profiler runs all along ("profiled"), or does not."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    from torch.profiler import record_function as recorded

    profiler = profile(activities=[ProfilerActivity.CPU])
    if mode == "profiled":
        profiler.start()

    def close() -> dict[str, int]:
        # Not stopped: turning its events into a trace takes long, for nothing.
        return {"running": int(profiler is not None)}

    decorated: Any = recorded("forward")(function)
    return Contestant(peer_subjects(recorded, decorated), str(torch.__version__), close)


def opentelemetry(mode: str, workdir: str) -> Contestant:
    """The SDK with a batch processor; spans carry epoch and step as attributes."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class DiscardingExporter(SpanExporter):
        """Takes every batch and keeps none: what an exporter costs is not the SDK's fault."""

        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(DiscardingExporter()))
    tracer = provider.get_tracer("bench")

    def span(name: str) -> Any:
        return tracer.start_as_current_span(name, attributes={"epoch": 1, "step": 2})

    def close() -> dict[str, int]:
        provider.shutdown()
        return {}

    decorated = tracer.start_as_current_span("forward")(function)
    return Contestant(peer_subjects(span, decorated), version("opentelemetry-sdk"), close)
