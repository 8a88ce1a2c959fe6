"""The flight recorder: the last events, written when they are asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import RunScript, Traced
from perfetto.engine import view

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.validating import validate_traces

MIB = 1 << 20


def span(step: int) -> None:
    with ai.compute.forward(step=step):
        pass


def test_nothing_is_written_unasked(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", flight_recorder=True) as run:
        span(0)
        assert repr(run) == f"<dftrace run, on: {run.path}>"
        assert run.stats()["written_bytes"] == 0
    assert list(tmp_path.iterdir()) == []


def test_dumps_add_up_to_every_event_once(traced: Traced) -> None:
    with traced(flight_recorder=True) as rec:
        for step in range(3):
            for _ in range(1000):
                span(step)
            with ai.pipeline.train:
                assert dftrace_ai.dump(f"after {step}") == rec.run.path
        span(99)
    steps = [event.user["step"] for event in rec.trace.named("forward")]
    assert sorted(steps) == sorted([0, 1, 2] * 1000)
    assert [e.user["reason"] for e in rec.trace.named("dump")] == ["after 0", "after 1", "after 2"]
    # Open at each dump, and ended since: told once, with its duration.
    assert [event.ph for event in rec.trace.named("train")] == ["X"] * 3


def test_a_dump_counts_the_threads_whose_stacks_have_no_room(traced: Traced) -> None:
    stay = threading.Event()
    long = "f" * 400
    there: dict[str, Any] = {"stay": stay}
    exec(f"def {long}(n): return {long}(n - 1) if n else stay.wait()", there)
    threads = [threading.Thread(target=there[long], args=(95,)) for _ in range(20)]
    with traced(flight_recorder=True) as rec:
        span(0)
        for thread in threads:
            thread.start()
        dftrace_ai.dump()
        stay.set()
        for thread in threads:
            thread.join()
    dump = rec.trace.one("dump").user
    assert 1 < len(dump["stacks"]) < 20
    assert len(dump["stacks"]) + dump["left_out"] >= 21


def test_the_seconds_bound_leaves_out_what_is_older(run_script: RunScript) -> None:
    """Held by the clock that the trace itself shows; whoever stands still for long has less to tell."""
    done = run_script(
        """
        import json, time
        import dftrace_ai
        from dftrace_ai import ai
        dftrace_ai.initialize(flight_recorder=True, flight_seconds=0.5)
        begun = [time.monotonic()]
        while begun[-1] < begun[0] + 1:
            with ai.compute.forward(step=len(begun) - 1):
                time.sleep(0.001)
            begun.append(time.monotonic())
        asked = time.monotonic()
        dftrace_ai.dump()
        print(json.dumps([begun, asked, time.monotonic()]))
        """
    )
    trace = done.trace()
    dump = trace.one("dump")
    ((begun, asked, dumped),) = done.said
    ends = {event.user["step"]: event.end_ns for event in trace.named("forward")}
    assert all(end >= dump.ts_ns - 600_000_000 for end in ends.values())
    assert dump.user["seconds"] <= 0.51
    steps = len(begun) - 1
    left_out = steps - len(ends)
    assert sorted(ends) == list(range(left_out, steps))
    # The newest of these began so long before.
    assert not left_out or begun[left_out - 1] <= dumped - 0.4
    # Unless all was one step, or none was younger, the first is left out, and the last is there.
    assert left_out or begun[1] > asked - 0.6
    assert ends or begun[-2] < dumped - 0.4


HANDLED_BEFORE = pytest.mark.skipif(
    sys.version_info >= (3, 14),
    reason="a worker's finalizers are run when what it raised is handled",
)


@pytest.mark.parametrize(
    "ending",
    [
        "raise RuntimeError('lost')",
        "with_tracing",
        pytest.param("worker", marks=HANDLED_BEFORE),
    ],
)
def test_an_exception_nobody_caught_is_a_reason_to_dump(run_script: RunScript, ending: str) -> None:
    source = """
        import multiprocessing, sys
        import dftrace_ai
        from dftrace_ai import ai
        def work():
            for _ in range(100):
                with ai.compute.forward:
                    pass
            raise RuntimeError("lost")
        if ENDING == "worker":
            dftrace_ai.initialize(flight_recorder=True)
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start(); child.join()
            sys.exit(1)
        if ENDING == "with_tracing":
            with dftrace_ai.tracing(flight_recorder=True):
                work()
        dftrace_ai.initialize(flight_recorder=True)
        work()
        """
    done = run_script(source.replace("ENDING", repr(ending)), status=1)
    trace = done.trace()
    assert len(trace.named("forward")) == 100
    assert trace.footer["ended"] == "exception"
    assert trace.footer["error"] == "RuntimeError"
    dump = trace.one("dump").user
    assert (dump["reason"], dump["message"]) == ("exception RuntimeError", "lost")
    assert "in work\n" in dump["stack"]
    assert dump["stack"].endswith("RuntimeError: lost\n")
    assert f"dftrace: dumped to {trace.path} " in done.stderr


HUNG = """
    import ctypes, os
    import dftrace_ai
    from dftrace_ai import ai
    dftrace_ai.initialize(flight_recorder=True, dump_signal="SIGUSR2")
    os.mkfifo("go on")
    waits = os.open("go on", os.O_RDWR)
    with ai.pipeline.train:
        for _ in range(100):
            with ai.compute.forward:
                pass
        with ai.comm.all_reduce(bytes=4096):
            print("ready", flush=True)
            ctypes.PyDLL(None).read(waits, ctypes.create_string_buffer(1), 1)
"""


def dumped(process: subprocess.Popen[str]) -> Path:
    """The trace of a process that is asked for a dump, once it says that it is there."""
    os.kill(process.pid, signal.SIGUSR2)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("dftrace: dumped to "), line
    assert line.endswith(f' ("signal {int(signal.SIGUSR2)}")\n'), line
    return Path(line.removeprefix("dftrace: dumped to ").rpartition(" (")[0])


def open_slices(paths: list[Path]) -> list[tuple[str, int, object]]:
    """What Perfetto shows as not ended: name, depth, and what its arguments say of that."""
    answer = view(paths)
    return [
        (one.name, one.depth, one.arg.get("unfinished"))
        for one in answer.slices
        if one.dur_ns == -1
    ]


def test_a_signal_dumps_what_the_stuck_main_thread_is_in(run_script: RunScript) -> None:
    """The main thread sits in C without ever running a handler of Python's."""
    seen: list[Path] = []

    def ask(process: subprocess.Popen[str]) -> None:
        seen.append(dumped(process))
        check(seen[0])
        # Asked once more, and nothing has changed.
        assert dumped(process) == seen[0]
        check(seen[0])
        process.kill()

    def check(path: Path) -> None:
        assert open_slices([path]) == [("train", 0, True), ("all_reduce", 1, True)]
        found = summarise([path])
        assert {(row.kind, row.name): row.count for row in found.others} == {
            ("unfinished span", "train"): 1,
            ("unfinished span", "all_reduce"): 1,
            ("instant", "dump"): found.events - 102,
        }
        assert validate_traces([path], unfinished_ok=True).fault_count == 0

    done = run_script(HUNG, status=-9, stop=ask)
    from dftrace_ai.spools.recovery import adopt_dead

    assert adopt_dead(done.folder).finished == [str(path) for path in seen]
    trace = done.trace()
    assert len(trace.named("forward")) == 100
    assert [event.user["reason"] for event in trace.named("dump")] == ["signal 12"] * 2
    assert trace.one("all_reduce").args["unfinished"] is True
    assert trace.one("all_reduce").user["bytes"] == 4096
    assert trace.parent(trace.one("all_reduce")) is trace.one("train")
    assert trace.footer["unfinished"] == 2


def test_a_signal_that_has_a_handler_is_not_taken(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        with pytest.raises(dftrace_ai.ConfigError, match="SIGUSR2.*has a handler already"):
            dftrace_ai.initialize(log_file=tmp_path / "t", dump_signal="usr2")
        assert dftrace_ai.finalize() is None
    finally:
        signal.signal(signal.SIGUSR2, before)
    with dftrace_ai.tracing(log_file=tmp_path / "t", dump_signal="usr2"):
        span(1)
    # Somebody who sends it to every rank cannot know which have finished.
    os.kill(os.getpid(), signal.SIGUSR2)
    mine: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _: mine.append(number))
    os.kill(os.getpid(), signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, before)
    assert mine == [signal.SIGUSR2]


def test_the_next_run_keeps_its_dump_signal(run_script: RunScript) -> None:
    """It may take it while another thread still completes the trace of the run before."""
    done = run_script(
        """
        import os, signal, sys, threading, time
        import dftrace_ai
        from dftrace_ai import _native, ai

        def spans(count):
            for _ in range(count):
                with ai.compute.forward:
                    pass

        dftrace_ai.initialize(dump_signal="SIGUSR2", flush_interval_ms=60_000)
        spans(20_000)
        sys.setswitchinterval(100)
        ending = threading.Thread(target=dftrace_ai.finalize)
        ending.start()
        while _native.is_on():
            time.sleep(0)
        # Before the other thread has the interpreter again, as the next run does it.
        _native.set_dump_signal(signal.SIGUSR2)
        ending.join()
        dftrace_ai.initialize(flight_recorder=True)
        spans(10)
        os.kill(os.getpid(), signal.SIGUSR2)
        while not _native.stats()["written_spans"]:
            time.sleep(0.001)
        dftrace_ai.finalize()
        # Between two runs.
        os.kill(os.getpid(), signal.SIGUSR2)

        with dftrace_ai.tracing(flight_recorder=True, dump_signal="SIGUSR2") as run:
            spans(10)
            os.kill(os.getpid(), signal.SIGUSR2)
            while not run.stats()["written_spans"]:
                time.sleep(0.001)
            print(run.stats()["written_spans"], flush=True)
        """
    )
    assert done.said == [10]


def test_without_the_recorder_a_dump_is_a_flush(traced: Traced) -> None:
    assert dftrace_ai.dump() is None
    with traced() as rec:
        assert dftrace_ai.dump() is None
        span(1)
        assert dftrace_ai.dump() == rec.run.path
        assert rec.run.stats()["written_spans"] == 1


def test_several_who_ask_at_once_are_all_told(traced: Traced) -> None:
    """Those that come while a dump is written share the next one, with the reasons of all."""
    asked = {f"thread {number}" for number in range(8)}
    with traced(flight_recorder=True, perfetto=False) as rec:
        span(0)
        threads = [threading.Thread(target=dftrace_ai.dump, args=(one,)) for one in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    told = [reason for one in rec.trace.named("dump") for reason in one.args["reason"].split("; ")]
    assert sorted(told) == sorted(asked)
