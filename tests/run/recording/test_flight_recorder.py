"""The flight recorder: the last events, written when they are asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import RunScript, Traced
from perfetto.engine import view
from perfetto.trace_file import read, read_unfinished

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.analysis.summary.figures import summarise
from dftrace_ai.analysis.validating.validate import validate_traces

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


def test_only_the_last_bytes_are_kept(traced: Traced) -> None:
    made = 200_000
    with traced(flight_recorder=True, spool_bytes=MIB) as rec:
        for _ in range(made):
            with ai.compute.forward:
                pass
        before = rec.run.stats()
        dftrace_ai.dump()
    assert before["spool_bytes"] <= MIB
    assert (before["dropped"], before["written_bytes"]) == (0, 0)
    forward = rec.trace.named("forward")
    assert before["overwritten"] + len(forward) == made
    assert len(forward) > 5000
    ids = sorted(event.id for event in forward)
    assert ids == list(range(ids[0], ids[0] + len(ids))), "a hole"
    assert rec.trace.footer["overwritten"] == before["overwritten"]


def test_the_units_of_threads_that_ended_are_used_again(traced: Traced) -> None:
    def work() -> None:
        for _ in range(300):
            with ai.compute.forward:
                pass

    with traced(flight_recorder=True, spool_bytes=MIB) as rec:
        for wave in range(40):
            ai.compute.update(wave=wave)
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        dftrace_ai.dump()
        # Threads ran beside each other: what one still holds from before the last that another has let
        # go is let go by the dump, which is whole from its first moment on.
        stats = rec.run.stats()
    assert stats["spool_bytes"] <= MIB
    ai.reset()
    waves = [event.user["wave"] for event in rec.trace.named("forward")]
    assert stats["dropped"] == 0
    assert len(waves) + stats["overwritten"] == 40 * 4 * 300
    assert waves.count(39) == 4 * 300


def test_arguments_are_right_as_long_as_a_span_is_kept(traced: Traced) -> None:
    """A spool as small as this one is full of arguments after ten milliseconds of nothing else,
    in which the drain thread may have had no processor: those behind are left out, and counted."""
    with traced(flight_recorder=True, spool_bytes=MIB) as rec:
        for step in range(100_000):
            if step % 250 == 0:
                time.sleep(1e-4)
            ai.compute.update(step=step)
            with ai.compute.forward:
                pass
        dftrace_ai.dump()
    ai.reset()
    spans = rec.trace.named("forward")
    told = [span for span in spans if "step" in span.user]
    stats = rec.run.stats()
    assert len(spans) - len(told) <= stats["args_sanitised"]
    assert len(told) > 500
    # A span that is dropped takes no id.
    assert [span.id for span in spans] == list(range(spans[0].id, 100_001 - stats["dropped"]))
    behind = [span.user["step"] + 1 - span.id for span in told]
    assert behind == sorted(behind)
    assert 0 <= behind[0] <= behind[-1] <= stats["dropped"]


def test_the_seconds_bound_leaves_out_what_is_older(run_script: RunScript) -> None:
    """Held by the clock that the trace itself shows, not by the test's."""
    done = run_script(
        """
        import time
        import dftrace_ai
        from dftrace_ai import ai
        dftrace_ai.initialize(flight_recorder=True, flight_seconds=0.5)
        begun = time.monotonic()
        while time.monotonic() < begun + 1.5:
            with ai.compute.forward:
                time.sleep(0.001)
        dftrace_ai.dump()
        """
    )
    trace = done.trace()
    dump = trace.one("dump")
    ends = [event.ts_ns + event.dur_ns for event in trace.named("forward")]
    assert min(ends) >= dump.ts_ns - 600_000_000
    assert 0.4 < dump.user["seconds"] <= 0.51
    assert len(ends) > 50


@pytest.mark.parametrize("ending", ["raise RuntimeError('lost')", "with_tracing", "worker"])
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


def test_a_killed_recorder_leaves_its_last_events(run_script: RunScript) -> None:
    done = run_script(
        """
        import os, signal
        import dftrace_ai
        from dftrace_ai import ai
        dftrace_ai.initialize(flight_recorder=True, spool_bytes=1 << 20)
        for _ in range(100_000):
            with ai.compute.forward:
                pass
        ai.comm.all_reduce.start()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-9,
    )
    assert done.files == []
    from dftrace_ai.spools.recovery import adopt_dead

    (path,) = adopt_dead(done.folder).finished
    trace = read(Path(path))
    ids = sorted(event.id for event in trace.named("forward"))
    assert 5000 < len(ids) < 100_000
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert len(ids) + trace.footer["overwritten"] == 100_000
    assert trace.one("all_reduce").args["unfinished"] is True


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
        with ai.compute.step:
            pass
    if GOES_ON:
        dftrace_ai.dump("it went on")
        with ai.compute.backward:
            pass
        os._exit(3)
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

    done = run_script(HUNG.replace("GOES_ON", "False"), status=-9, stop=ask)
    from dftrace_ai.spools.recovery import adopt_dead

    assert adopt_dead(done.folder).finished == [str(path) for path in seen]
    trace = done.trace()
    assert len(trace.named("forward")) == 100
    assert [event.user["reason"] for event in trace.named("dump")] == ["signal 12"] * 2
    assert trace.one("all_reduce").args["unfinished"] is True
    assert trace.one("all_reduce").user["bytes"] == 4096
    assert trace.parent(trace.one("all_reduce")) is trace.one("train")
    assert trace.footer["unfinished"] == 2


def test_what_was_open_at_a_dump_is_told_as_it_ended(run_script: RunScript) -> None:
    ids: list[int] = []

    def ask(process: subprocess.Popen[str]) -> None:
        trace = read_unfinished(dumped(process))
        assert [trace.one(name).ph for name in ("train", "all_reduce")] == ["B", "B"]
        ids.extend(trace.one(name).id for name in ("train", "all_reduce"))
        Path(f"/proc/{process.pid}/cwd/go on").write_text("x", encoding="utf-8")

    done = run_script(HUNG.replace("GOES_ON", "True"), status=3, stop=ask)
    from dftrace_ai.spools.recovery import adopt_dead

    # Told by a dump, and what came after it by who finds the process dead.
    adopt_dead(done.folder)
    trace = done.trace()
    assert [trace.one(name).id for name in ("train", "all_reduce")] == ids
    assert {event.ph for event in trace.spans} == {"X"}
    assert (trace.footer["unfinished"], trace.footer["ended"]) == (0, "died")
    assert [trace.names[name] for name in ("step", "backward", "forward")] == [1, 1, 100]


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


def test_one_that_could_not_be_written_is_told_with_the_next(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with dftrace_ai.tracing(log_file=out / "t", flight_recorder=True):
        span(0)
        out.rename(tmp_path / "away")
        for reason in ("first", "second", "first"):
            with pytest.raises(FileNotFoundError):
                dftrace_ai.dump(reason)
        (tmp_path / "away").rename(out)
        dftrace_ai.dump("third")
    (path,) = out.iterdir()
    reasons = [one.args["reason"] for one in read(path).named("dump")]
    assert sorted("; ".join(reasons).split("; ")) == ["first", "first", "second", "third"]
