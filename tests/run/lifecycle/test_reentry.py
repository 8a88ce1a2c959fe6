"""Tracing from inside tracing: signal handlers, garbage collection, argument conversion, many runs."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import RunScript, Traced, read_all, trace_files

import dftrace_ai
from dftrace_ai import ai


def test_a_signal_handler_that_traces(traced: Traced) -> None:
    """It may strike between any two byte codes of a span's way in or out."""
    handled = itertools.count()

    def handler(*_: object) -> None:
        next(handled)
        with ai.comm.send, ai.comm.receive:
            pass

    @ai.compute.forward
    def forward() -> None:
        with ai.compute.step:
            pass

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with traced(overflow="wait") as rec:
            signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
            for _ in ai.data.item.iter(range(3000)):
                forward()
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    t = rec.trace
    count = next(handled)
    assert t.names["send"] == t.names["receive"] == count
    assert t.names["forward"] == t.names["step"] == t.names["item.block"] == 3000
    assert all((up := t.parent(e)) and up.name == "forward" for e in t.named("step"))
    assert all((up := t.parent(e)) and up.name == "item.block" for e in t.named("forward"))


@contextmanager
def collecting(step: Any) -> Iterator[None]:
    """Runs `step` at every garbage collection, and collects very often."""
    threshold = gc.get_threshold()

    def callback(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            step()

    gc.callbacks.append(callback)
    gc.set_threshold(10)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)


def test_a_garbage_collection_that_traces(traced: Traced) -> None:
    collections = itertools.count()

    def step() -> None:
        next(collections)
        with ai.comm.send:
            pass

    with traced(overflow="wait") as rec, collecting(step):
        for i in range(500):
            with ai.compute.forward(args={"i": i, "list": [[] for _ in range(20)]}):
                list(ai.data.item.iter([{}, {}]))
    t = rec.trace
    assert t.names["send"] == next(collections) > 0
    assert [e.user["i"] for e in t.named("forward")] == list(range(500))
    assert t.names["item.block"] == 1000


def test_a_span_that_is_dropped_while_open_in_a_cycle(traced: Traced) -> None:
    """Generators and iterators end by the collector's hand, at any place."""

    def gen() -> Iterator[int]:
        with ai.data.item:
            yield 1

    with traced() as rec:
        for _ in range(50):
            g = gen()
            next(g)
            cycle: list[Any] = [g]
            cycle.append(cycle)
            del g, cycle
            loop = iter(ai.dataloader.fetch.iter([1, 2]))
            next(loop)
            other: list[Any] = [loop]
            other.append(other)
            del loop, other
        gc.collect()
        with ai.compute.step:
            pass
    t = rec.trace
    assert t.names["item"] == t.names["fetch.block"] == 50
    assert t.footer["unfinished"] == 0
    assert t.one("step").level == 1


def test_five_thousand_spans_in_each_other(traced: Traced) -> None:
    nodes = [ai.compute, ai.compute.forward, ai.data.item]
    with traced(perfetto=False) as rec:
        for i in range(5000):
            nodes[i % 3].start()
        for i in reversed(range(5000)):
            nodes[i % 3].stop()
        with ai.compute.step:
            pass
    t = rec.trace
    assert [e.level for e in t.spans] == [*range(1, 5001), 1]
    assert t.footer["unfinished"] == 0


def test_fifty_runs_leave_no_thread_and_no_descriptor_behind(tmp_path: Path) -> None:
    def run(i: int) -> None:
        with dftrace_ai.tracing(log_file=tmp_path / f"t{i}"):
            thread = threading.Thread(target=ai.compute.forward(lambda: None))
            thread.start()
            thread.join()

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    run(0)
    before = held()
    for i in range(1, 51):
        run(i)
    until = time.monotonic() + 20  # a joined thread's task may stay a moment longer
    while held()[1] > before[1] and time.monotonic() < until:
        os.sched_yield()
    assert held()[0] == before[0]
    assert held()[1] <= before[1]
    assert [t.names for t in read_all(trace_files(tmp_path))] == [{"forward": 1}] * 51


def test_initialize_and_finalize_from_many_threads_at_once(tmp_path: Path) -> None:
    gate = threading.Barrier(6)

    def work(n: int) -> None:
        for _ in range(20):
            gate.wait()
            if n % 2:
                dftrace_ai.initialize(log_file=tmp_path / "t")
            else:
                dftrace_ai.finalize()
            with ai.compute.forward:
                pass

    pool = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    dftrace_ai.finalize()
    assert all(set(t.names) == {"forward"} for t in read_all(trace_files(tmp_path)))


def test_arguments_converted_while_another_thread_ends_the_run(tmp_path: Path) -> None:
    inside, ended = threading.Event(), threading.Event()

    class Slow:
        def __repr__(self) -> str:
            inside.set()
            ended.wait(20)
            return "slow"

    def work() -> None:
        with ai.compute.forward(args={"slow": Slow()}):
            pass

    dftrace_ai.initialize(log_file=tmp_path / "t")
    with ai.compute.step:
        pass
    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(20)
    finisher = threading.Thread(target=dftrace_ai.finalize)
    finisher.start()
    ended.set()
    finisher.join()
    thread.join()
    (t,) = read_all(trace_files(tmp_path))
    assert t.names["step"] == 1


def test_tracing_under_a_profiler_and_a_tracer(run_script: RunScript) -> None:
    done = run_script("""
        import cProfile, sys, threading
        import dftrace_ai
        from dftrace_ai import ai

        @ai.compute.forward
        def forward():
            with ai.compute.step:
                pass

        def tracer(frame, event, arg):
            sys.settrace(None)
            with ai.comm.send:
                pass
            sys.settrace(tracer)
            return tracer

        with dftrace_ai.tracing():
            cProfile.runctx("for _ in ai.data.item.iter(range(10)): forward()", globals(), {},
                            filename="profile.out")
            sys.settrace(tracer)
            for _ in range(10):
                forward()
            sys.settrace(None)
    """)
    t = done.trace()
    assert t.names["forward"] == t.names["step"] == 20
    assert t.names["item.block"] == 10
    assert t.names["send"] >= 10
