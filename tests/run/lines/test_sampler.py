"""Samples of where a program stands: by function and line, in each of its processes, whatever its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import RunScript
from live.programs import until
from perfetto.trace_file import Sample, Trace

from dftrace_ai.analysis.lines.stack_samples import StackReader
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.live import snapshot

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="3.10 has frames of another kind"
)

# A part of the work lasts until its time is over, and until it was sampled often, however late.
WORK = """
    import json, os, sys, threading, time
    import dftrace_ai
    from dftrace_ai import ai

    def rounds():
        # How often the thread that samples has waited for its next moment.
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/status") as status:
                facts = dict(line.split(":") for line in status if line.startswith(("Name", "volun")))
            if facts["Name"].strip() == "dftrace-lines":
                return int(facts["voluntary_ctxt_switches"])
        return 0

    def burn(seconds, often=40):
        until, often = time.thread_time() + seconds, often and rounds() + often
        while time.thread_time() < until:
            sum(range(50))
            if often and time.thread_time() >= until and rounds() < often: until += 0.02

    def decode():
        burn(0.3)

    def held_in_c():
        until, often = time.thread_time() + 0.3, rounds() + 40
        while time.thread_time() < until or rounds() < often:
            sum(range(3_000_000))

    def wait():
        often = rounds() + 40
        threading.Event().wait(0.3)
        while rounds() < often:
            threading.Event().wait(1)

    class Batch:
        def collate(self):
            def inner():
                burn(0.3)
            inner()
"""

PHASES = """
    with dftrace_ai.tracing(lines_hz=200):
        with ai.data.item:
            decode()
        with ai.data.preprocess:
            wait()
        with ai.dataloader.fetch:
            Batch().collate()
        with ai.compute.forward:
            held_in_c()
        child = os.fork()
        if not child:
            with ai.checkpoint.capture:
                decode()
            dftrace_ai.finalize()
            os._exit(0)
        os.waitpid(child, 0)
        def aside():
            with ai.comm.send:
                decode()
        thread = threading.Thread(target=aside)
        thread.start()
        thread.join()
"""


def lines_of(source: str, text: str) -> set[int]:
    """The numbers of the lines that hold a text."""
    return {number for number, line in enumerate(source.split("\n"), 1) if text in line}


def samples_in(trace: Trace, name: str) -> list[Sample]:
    """Those that were taken of its thread in the only span of that name."""
    span = trace.one(name)
    assert span.ts_ns is not None
    return [
        sample
        for sample in trace.samples
        if sample.tid == span.tid and span.ts_ns <= sample.ts_us * 1000 < span.end_ns
    ]


def functions(sample: Sample) -> list[str]:
    return [frame.function for frame in sample.frames if frame.owner == 0]


def test_each_phase_is_seen_at_its_own_lines_in_each_process_and_thread(
    run_script: RunScript,
) -> None:
    """Work, waiting, C code that holds the lock; a method's inner function, a thread, a forked child."""
    # From 3.12 on the interpreter warns of forks beside threads, ours among them.
    done = run_script(WORK + PHASES, env={"PYTHONWARNINGS": "ignore::DeprecationWarning"})
    assert done.stderr == ""
    trace, (child,) = done.split()
    source = (done.folder.parent / "script.py").read_text(encoding="utf-8")

    expected = {
        "item": ["burn", "decode", "<module>"],
        "fetch": ["burn", "inner", "Batch.collate", "<module>"],
        "send": ["burn", "decode", "aside"],
    }
    for name, stack in expected.items():
        seen = samples_in(trace, name)
        whole = [functions(one) for one in seen if not one.cut]
        # The calls at the beginning and the end of a span are its own, too.
        most, count = Counter(map(tuple, whole)).most_common(1)[0]
        assert list(most) == stack
        assert count > 10
        assert count > 0.5 * len(seen)
    assert [functions(one) for one in samples_in(child, "capture")].count(
        ["burn", "decode", "<module>"]
    ) > 10

    waiting = [one for one in samples_in(trace, "preprocess") if "wait" in functions(one)]
    assert len(waiting) > 10
    assert sum(one.cpu_us == 0 for one in waiting) > 0.5 * len(waiting)
    in_c = [one for one in samples_in(trace, "forward") if "held_in_c" in functions(one)]
    assert len(in_c) > 10
    assert sum(one.cpu_us for one in in_c if one.cpu_us > 0) > 100_000

    burning = [one.frames[0] for one in samples_in(trace, "item") if functions(one)[0] == "burn"]
    assert {frame.line for frame in burning} <= lines_of(source, "sum(range(50))") | lines_of(
        source, "time.thread_time()"
    )
    assert {frame.shown for frame in burning} == {
        f"burn (script.py:{frame.line})" for frame in burning
    }


def test_a_trace_tells_of_no_place_on_the_machine(run_script: RunScript, tmp_path: Path) -> None:
    """Files are told below the working directory or a directory of modules; or not at all."""
    library = tmp_path / "site-packages" / "slow"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(
        "def call(work):\n    work()\ndef never():\n    1\n", encoding="utf-8"
    )
    source = WORK + "    import slow\n    slow.call(decode)\n".replace(
        "slow.call", "with dftrace_ai.tracing():\n        with ai.data.item:\n            slow.call"
    )
    for files in ("1", "0"):
        done = run_script(
            source,
            env={
                "PYTHONPATH": str(library.parent),
                "DFTRACE_LINES_HZ": "200",
                "DFTRACE_LINES_FILES": files,
            },
        )
        trace = done.trace()
        assert len(trace.samples) > 10
        assert not [e.line for e in trace.of("P") if str(done.folder.parent) in e.line]
        assert all("/site-packages" not in e.line for e in trace.of("P"))
        called = {f for s in trace.samples for f in s.frames if f.function == "call"}
        decoding = {f for s in trace.samples for f in s.frames if f.function == "decode"}
        if files == "1":
            assert called == {(1, "call (slow/__init__.py)", "slow/__init__.py", 0)}
            assert {(f.owner, f.file) for f in decoding} == {(0, "script.py")}
        else:
            assert called == {(1, "call", "", 0)}
            assert decoding == {(0, "decode", "", 0)}


def test_files_of_odd_names_tell_of_no_place_either(run_script: RunScript) -> None:
    """Addresses of notebooks, ways out of a directory, what is no file: the last part of them alone."""
    told = {
        "file:///home/me/notes/cell.py": "cell.py",
        "../other/aside.py": "aside.py",
        "sub/../../home/me/out.py": "out.py",
        "~/mine.py": "mine.py",
        "./sub/here.py": "sub/here.py",
        "vscode-notebook-cell:/home/me/note.ipynb": "note.ipynb",
        "<doctest /home/me/tested.py>": "<tested.py>",
        "<attrs generated init mine.Batch>": "<attrs generated init mine.Batch>",
    }
    calls = "".join(
        f"""
    space = {{"below": below}}
    exec(compile("def odd_{number}():\\n    below()", {name!r}, "exec"), space)
    below = space["odd_{number}"]
"""
        for number, name in enumerate(told)
    )
    trace = run_script(
        f"{WORK}    below = decode\n{calls}"
        "    with dftrace_ai.tracing(lines_hz=200):\n        with ai.data.item:\n            below()\n"
    ).trace()
    seen = {f.function: f.file for s in trace.samples for f in s.frames if "odd_" in f.function}
    assert [seen[f"odd_{number}"] for number in range(len(told))] == list(told.values())


def test_samples_of_late_ticks_stand_for_the_time_that_passed(run_script: RunScript) -> None:
    """On a busy machine, or of a process that was stopped, whoever holds the interpreter's lock."""
    done = run_script(
        WORK
        + """
    import signal, subprocess
    import numpy

    def multiply():
        matrix = numpy.ones((400, 400))
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            matrix @ matrix

    with dftrace_ai.tracing(lines_hz=200):
        with ai.data.item:
            decode()
        with ai.data.preprocess:
            wait()
        with ai.compute.step:
            held_in_c()
        with ai.compute.backward:
            multiply()
        with ai.compute.forward:
            # The process stands still meanwhile, and takes no sample.
            subprocess.Popen(["sh", "-c", f"kill -STOP {os.getpid()}; sleep 1; kill -CONT {os.getpid()}"]).wait()
            decode()
"""
    )
    trace = done.trace()
    (found,) = StackReader().read(open_traces([trace.path]))
    main = found.tid == done.pid
    at_ns, period_ns = found.at_ns[main], found.period_ns[main]
    base_ns = 1000 * trace.header.get("time_base_us", 0)
    spans = [trace.one(name) for name in ("item", "preprocess", "step", "backward", "forward")]
    whole_ns = sum(span.end_ns - (span.ts_ns or 0) for span in spans)
    for span in spans:
        assert span.ts_ns is not None
        first, behind = at_ns.searchsorted([base_ns + span.ts_ns, base_ns + span.end_ns])
        missing_ns = span.end_ns - span.ts_ns - int(period_ns[first:behind].sum())
        # The first sample stands for some time before, too, and the one behind for some of the end.
        before_ns, rest_ns = (int(period_ns[at : at + 1].sum()) for at in (first, behind))
        assert -before_ns < missing_ns + 0.05 * whole_ns, span.name
        assert missing_ns - 0.05 * whole_ns < rest_ns, span.name
    assert found.period_ns.max() > 100e6
    # How long the thread waited for a processor, where the kernel tells that.
    ran_ns = int(Path("/proc/self/schedstat").read_text("ascii").split()[0])
    assert (found.ready_ns >= 0).any() == bool(ran_ns)


def test_each_part_of_a_trace_tells_its_samples_by_itself(run_script: RunScript) -> None:
    """So does what a flight recorder writes; profiles that two parts share would have nodes twice."""
    parts = run_script(
        WORK
        + """
    with dftrace_ai.tracing(lines_hz=1000, max_file_bytes=65536, flush_interval_ms=10,
                            write_buffer_bytes=4096, compression="none"):
        ai.data.item.update(note="x" * 400)
        # Samples are written once a second: until two parts have some, however busy the machine.
        folder = os.path.dirname(os.environ["DFTRACE_LOG_FILE"])
        told = 0
        while told < 2:
            for _ in range(100):
                with ai.data.item:
                    burn(0.004, often=0)
            parts = [open(os.path.join(folder, name)).read() for name in os.listdir(folder) if ".pfw" in name]
            told = sum('"ProfileChunk"' in part for part in parts)
"""
    )
    traces = parts.traces()
    assert len(traces) > 1
    assert sum(len(trace.samples) > 0 for trace in traces) > 1

    flight = run_script(
        WORK
        + """
    with dftrace_ai.tracing(lines_hz=200, flight_recorder=True) as run:
        for _ in range(5):
            with ai.data.item:
                decode()
        run.dump("now")
"""
    )
    assert len(flight.trace().samples) > 10


def test_other_interpreters_are_not_looked_into(run_script: RunScript) -> None:
    """What runs there is time of who calls it; nothing else changes."""
    done = run_script(
        WORK
        + """
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters

    def calls(other):
        often = rounds() + 20
        while rounds() < often:
            interpreters.run_string(other, "def elsewhere(): sum(range(300_000))\\nelsewhere()")

    with dftrace_ai.tracing(lines_hz=200):
        with ai.data.item:
            other = interpreters.create()
            calls(other)
            interpreters.destroy(other)
            decode()
"""
    )
    assert done.stderr == ""
    trace = done.trace()
    stacks = [functions(one) for one in trace.samples]
    assert not [stack for stack in stacks if "elsewhere" in stack]
    assert sum("calls" in stack for stack in stacks) > 5
    assert sum("decode" in stack for stack in stacks) > 5


def test_where_stacks_cannot_be_read_it_is_told_once_and_all_else_is_recorded(
    run_script: RunScript,
) -> None:
    """In the header as well."""
    done = run_script(
        """
    import dftrace_ai
    from dftrace_ai import _native, ai

    class Reader:
        def __init__(self):
            raise RuntimeError("stacks cannot be read of Python 9")

    _native.StackReader = Reader
    for _ in range(2):
        with dftrace_ai.tracing(lines_hz=100):
            with ai.data.item:
                pass
"""
    )
    trace = done.traces()[0]
    assert done.stderr.count("no lines of the program are recorded") == 2
    assert trace.header["lines_refused"] == "stacks cannot be read of Python 9"
    assert "lines_hz" not in trace.header
    assert [e.name for e in trace.spans] == ["item"]


def test_a_killed_process_loses_no_chunk_that_was_made(
    run_script: RunScript, tmp_path: Path
) -> None:
    """Whoever completes its trace writes them."""

    def kill(process: subprocess.Popen[str]) -> None:
        # Where a thread stands is told to who looks in behind the chunk that says so, too.
        until(
            lambda: snapshot([tmp_path]).processes[0].threads[0].stack,
            lambda stack: [frame.function for frame in stack] == ["burn", "<module>"],
        )
        os.kill(process.pid, signal.SIGKILL)

    done = run_script(
        WORK
        + """
    dftrace_ai.initialize(lines_hz=200, flush_interval_ms=60000)
    with ai.compute.forward:
        print("ready", flush=True)
        burn(1000)
""",
        status=-signal.SIGKILL,
        stop=kill,
    )
    from dftrace_ai.spools.recovery import adopt_dead

    adopt_dead(done.folder)
    trace = done.trace()
    assert trace.footer["ended"] == "died"
    assert ["burn", "<module>"] in [functions(one) for one in trace.samples]
