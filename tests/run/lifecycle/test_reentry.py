"""Tracing from inside tracing: collectors, arguments, profilers, runs that end meanwhile."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import RunScript, Traced, read_all, trace_files

import dftrace_ai
from dftrace_ai import ai


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


# Keeps the interpreter in the middle of its end until the daemon threads have left it (until 3.13) or
# been stopped for good (from 3.14 on, where they never leave).
HOLDS_THE_END = """
import os, sys, threading, time, types

class HoldsTheEnd:
    def __init__(self, threads):
        self.tasks = [f"/proc/self/task/{t.native_id}" for t in threads]

    def __del__(self, sleep=time.sleep, exists=os.path.exists, leave=sys.version_info < (3, 14)):
        while leave and any(map(exists, self.tasks)):
            sleep(0.001)
        os.write(1, b'"held"\\n')

def daemons(*threads):
    for thread in threads:
        thread.start()
    # In a module that nobody else refers to: the interpreter takes it apart at its end.
    sys.modules["held"] = types.ModuleType("held")
    sys.modules["held"].end = HoldsTheEnd(threads)
"""


def test_daemon_threads_that_leave_from_within_a_call_of_ours(run_script: RunScript) -> None:
    """The interpreter ends a daemon thread wherever it asks for the GIL: in the user's code, below ours."""
    done = run_script(
        HOLDS_THE_END
        + """
import dftrace_ai
from dftrace_ai import ai

run = dftrace_ai.initialize()
reached = set()  # by atomic steps: a lock could stay with a thread that leaves

def reach(place):
    reached.add(place)

class Slow:
    def __str__(self):
        reach("value")
        while True:
            time.sleep(0.001)

class Named(threading.Thread):
    @property
    def name(self):
        if threading.get_ident() == self.ident:
            reach("name")
            while True:
                time.sleep(0.001)
        return "named"

    @name.setter
    def name(self, value): ...

    def run(self):
        with ai.data: pass

def in_a_value():
    with ai.compute(args={'a': Slow()}): pass

def in_an_event():
    ai.instant("late", args={"a": [{"b": Slow()}]})

@ai.compute.step
def decorated():
    reach("function")
    while True:
        time.sleep(0.001)

def items():
    yield 1
    reach("iterator")
    while True:
        time.sleep(0.001)

def in_an_iterator():
    for _ in ai.data.iter(items()): pass

def in_a_flush():
    while True:
        run.flush()
        reach("flush")

works = (in_a_value, in_an_event, decorated, in_an_iterator, in_a_flush, in_a_flush)
daemons(Named(daemon=True), *(threading.Thread(target=work, daemon=True) for work in works))
while len(reached) < 5:
    time.sleep(0.001)
"""
    )
    assert done.said == ["held"]
    assert done.stderr == ""
    assert done.trace().footer["unfinished"] >= 2


def test_a_collector_that_ends_the_run_and_begins_another(run_script: RunScript) -> None:
    """It may run wherever an object is made: also between a task's span and its record."""
    done = run_script("""
        import asyncio, gc
        import dftrace_ai
        from dftrace_ai import ai

        runs = 0
        within = False

        def begin_another(phase, _):
            global runs, within
            if phase == "start" or within:
                return
            within = True
            dftrace_ai.finalize()
            dftrace_ai.initialize()
            runs += 1
            within = False

        async def task(i):
            for _ in range(3):
                gc.set_threshold(1 + i % 7)
                with ai.compute(args={'i': [i]}):
                    await asyncio.sleep(0)
                    with ai.compute.forward:
                        ai.instant("here", args={"b": [i]})
                        await asyncio.sleep(0)

        async def tasks():
            await asyncio.gather(*map(task, range(7)))

        dftrace_ai.initialize()
        gc.callbacks.append(begin_another)
        asyncio.run(tasks())
        gc.callbacks.clear()
        gc.set_threshold(700)
        print(runs)
    """)
    assert done.said[0] > 50
    done.traces(perfetto=False)


def test_arguments_that_are_cleared_by_what_they_replace(run_script: RunScript) -> None:
    """A value that goes may clear the node, or record with it."""
    done = run_script("""
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize()
        node = ai.compute.forward

        class Clears:
            def __del__(self):
                node.reset()
                for i in range(50):
                    {str(k): k for k in range(i)}

        class Records:
            def __del__(self):
                with node: pass

        for i in range(100):
            node.update(args={"a": Clears(), **{f"k{k}": k for k in range(20)}})
            node.update(args={"a": 1, **{f"k{k}": -k for k in range(20)}})
        node.reset()
        node.update(args={"a": Records(), "b": 1})
        node.update(args={"a": 2, "b": 2})
        with node: pass
    """)
    assert [e.user for e in done.trace().named("forward")][-1] == {"a": 2, "b": 2}
