"""How a process may end without finalize, and what stays."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import RunScript, trace_files
from perfetto import engine
from perfetto.trace_file import Trace, read, read_unfinished

from dftrace_ai.spools.recovery import adopt_dead

WORK = """
import atexit, os, signal, sys, threading
import dftrace_ai
from dftrace_ai import ai

dftrace_ai.initialize()
for i in range(5000):
    with ai.compute.forward(step=i) if i % 1000 == 0 else ai.compute.forward:
        pass
"""


def assert_whole(t: Trace) -> None:
    """All 5,000 spans of WORK are there."""
    forward = t.named("forward")
    assert len(forward) == 5000
    assert [e.user["step"] for e in forward if e.user] == [0, 1000, 2000, 3000, 4000]


@pytest.mark.parametrize(
    ("ending", "status", "error"),
    [
        ("", 0, None),
        ("sys.exit(3)", 3, None),
        ("raise RuntimeError('uncaught')", 1, "RuntimeError"),
        ("os.kill(os.getpid(), signal.SIGINT)", None, "KeyboardInterrupt"),
        ("threading.Thread(target=lambda: 1/0).start()", 0, None),
    ],
    ids=["end", "sys.exit", "uncaught", "sigint", "thread-raises"],
)
def test_ending_without_finalize_keeps_everything(
    run_script: RunScript, ending: str, status: int | None, error: str | None
) -> None:
    done = run_script(WORK + ending, status=status)
    t = done.trace()
    assert_whole(t)
    assert t.footer["ended"] == ("exit" if error is None else "exception")
    assert t.footer.get("error") == error
    assert t.footer["unfinished"] == 0


def test_spans_open_at_the_end(run_script: RunScript) -> None:
    """A `with` left by sys.exit has ended; a start without a stop has not."""
    done = run_script(
        WORK
        + """
ai.pipeline.train.start()
with ai.data.item:
    sys.exit()
"""
    )
    t = done.trace()
    assert t.one("item").args["error"] == "SystemExit"
    assert t.one("train").args["unfinished"] is True
    assert t.parent(t.one("item")) is t.one("train")


def test_tracing_from_atexit_and_finalizers(run_script: RunScript) -> None:
    """Handlers of either age, __del__ and daemon threads may trace; nothing breaks."""
    done = run_script("""
        import atexit, sys

        def early():
            with ai.data.item(step=1):
                pass

        atexit.register(early)
        import dftrace_ai
        from dftrace_ai import ai

        class Last:
            def __del__(self):
                with ai.data.item(step=3):
                    pass

        dftrace_ai.initialize()
        keep = Last()
        sys.last = Last()

        @atexit.register
        def late():
            with ai.data.item(step=2):
                pass

        with ai.compute.forward:
            pass
    """)
    t = done.trace()
    assert t.names["forward"] == 1
    assert 2 in [e.user["step"] for e in t.named("item")]
    assert "Traceback" not in done.stderr


def test_finalize_in_atexit_and_in_a_thread(run_script: RunScript) -> None:
    done = run_script(WORK + "atexit.register(dftrace_ai.finalize)")
    assert_whole(done.trace())
    done = run_script(
        WORK
        + """
t = threading.Thread(target=dftrace_ai.finalize)
t.start()
t.join()
with ai.compute.forward:
    pass
"""
    )
    assert_whole(done.trace())


def test_a_trace_opens_while_the_job_runs_and_after_kill_9(run_script: RunScript) -> None:
    """Written and at rest: whole to every reader, Perfetto too, before the kill and after it."""
    seen: list[int] = []

    def look_and_kill(process: subprocess.Popen[str]) -> None:
        (path,) = trace_files(Path(str(process.args[1])).parent / "out")  # type: ignore[index]
        seen.append(opened(path))
        process.kill()

    done = run_script(
        WORK
        + """
ai.pipeline.train.start()
dftrace_ai.initialize().flush()
print("ready", flush=True)
signal.pause()
""",
        status=-signal.SIGKILL,
        stop=look_and_kill,
    )
    (path,) = done.files
    assert [*seen, opened(path)] == [5000, 5000]


def opened(path: Path) -> int:
    """How many spans Perfetto finds in an unfinished trace of whole blocks, without a complaint."""
    answer = engine.query(path, "select count(*) as n from slice where name = 'forward'")
    assert answer.clean, (answer.load_error, answer.stats)
    found: int = answer.rows()[0]["n"]
    assert found == len(read_unfinished(path).named("forward"))
    return found


def test_a_kill_9_inside_of_a_write_leaves_whole_blocks_and_recovery_the_rest(
    run_script: RunScript,
) -> None:
    """The kernel may cut the last block, which Perfetto refuses until the trace is recovered."""
    done = run_script(
        """
        import os, pathlib, signal
        import dftrace_ai
        from dftrace_ai import ai

        run = dftrace_ai.initialize(flush_interval_ms=1)
        with ai.pipeline.train:
            for i in range(5000):
                with ai.compute.forward:
                    pass
            while not (run.path and pathlib.Path(run.path).exists() and os.stat(run.path).st_size):
                os.sched_yield()
            with ai.compute.step:
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-signal.SIGKILL,
    )
    (path,) = done.files
    read_unfinished(path, in_a_write=True)
    assert not adopt_dead(path.parent).failed
    t = done.trace()
    assert (t.names["forward"], t.names["step"], t.names["train"]) == (5000, 1, 1)
    assert len(engine.slices(path)) == 5002


def test_os_exit_leaves_a_file_that_opens(run_script: RunScript) -> None:
    done = run_script(WORK + "dftrace_ai.initialize().flush()\nos._exit(7)", status=7)
    (path,) = done.files
    assert opened(path) == 5000


def test_sigterm_with_a_handler_that_exits(run_script: RunScript) -> None:
    done = run_script(
        """
        import signal, sys, threading
        import dftrace_ai
        from dftrace_ai import ai

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        dftrace_ai.initialize()
        with ai.pipeline.train:
            with ai.compute.forward:
                pass
            print("ready", flush=True)
            signal.pause()
        """,
        status=5,
        stop=lambda p: os.kill(p.pid, signal.SIGTERM),
    )
    t = done.trace()
    assert t.tree() == [["train", [["forward", []]]]]
    assert t.one("train").args["error"] == "SystemExit"


@pytest.mark.parametrize("dump_signal", [None, "SIGURG"])
def test_what_a_program_does_with_its_signals_stays_as_it_is(
    run_script: RunScript, dump_signal: str | None
) -> None:
    """What it ignores, handles and blocks, also in threads, children and programs that it starts."""
    done = run_script(
        """
        import os, signal, subprocess, sys, threading
        from pathlib import Path

        IGNORED = "SIGHUP SIGINT SIGQUIT SIGTERM SIGPIPE SIGXFSZ SIGUSR2".split()
        for name in IGNORED:
            signal.signal(signal.Signals[name], signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        config = {"flight_recorder": True, "dump_signal": sys.argv[1]} if sys.argv[1:] else {}
        ours = 1 << signal.Signals[sys.argv[1]] - 1 if sys.argv[1:] else 0

        # Two signals are glibc's own, which it takes with the first thread.
        everyones = sum(1 << number - 1 for number in signal.valid_signals())

        def actions(status=None):
            lines = (status or Path("/proc/thread-self/status").read_text()).splitlines()
            masks = dict(line.split() for line in lines if line.startswith("Sig"))
            return {
                kind: int(masks[f"Sig{kind}:"], 16) & everyones for kind in ("Ign", "Cgt", "Blk")
            }

        def in_a_program():
            return actions(subprocess.check_output(["cat", "/proc/self/status"], text=True))

        def in_a_child():
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                with ai.compute.backward:
                    os.write(writing, repr(actions()).encode())
                os._exit(0)
            os.waitpid(pid, 0)
            return eval(os.read(reading, 10_000))

        def in_a_thread():
            told = []
            def work():
                with ai.compute.backward:
                    told.append(actions())
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            return told[0]

        before, program = actions(), in_a_program()
        assert before["Ign"].bit_count() == program["Ign"].bit_count() + 2  # as subprocess has it
        import dftrace_ai
        from dftrace_ai import ai
        assert actions() == before
        with dftrace_ai.tracing(**config):
            with ai.compute.forward:
                for name in (*IGNORED, "SIGUSR1"):
                    os.kill(os.getpid(), signal.Signals[name])
                during = before | {"Cgt": before["Cgt"] | ours}
                for place in (actions, in_a_thread, in_a_child):
                    assert place() == during, place
                assert in_a_program() == program
            if config:
                dftrace_ai.dump()
        assert actions() == before
        """,
        args=[dump_signal] if dump_signal else [],
    )
    assert sum(t.names.get("forward", 0) for t in done.traces()) == 1


def test_exec_replaces_the_process(run_script: RunScript) -> None:
    """What ran before exec stays readable; what runs after it writes a file of its own."""
    done = run_script("""
        import os, sys
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize()
        with ai.pipeline.train:
            pass
        dftrace_ai.finalize()
        dftrace_ai.initialize()
        with ai.pipeline.test:
            pass
        code = "from dftrace_ai import ai\\nwith ai.data.item: pass"
        os.execv(sys.executable, [sys.executable, "-c", code])
    """)
    finished = []
    for path in done.files:
        try:
            finished.append(read(path))
        except AssertionError:
            read_unfinished(path)
    names = [dict(t.names) for t in finished]
    assert {"train": 1} in names
    assert {"item": 1} in names


def test_importing_the_package_afresh_does_no_harm(run_script: RunScript) -> None:
    done = run_script("""
        import sys
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize()
        with ai.compute.forward:
            pass
        for name in [n for n in sys.modules if n.split(".")[0] == "dftrace_ai"]:
            if sys.modules[name].__file__.endswith(".py"):
                del sys.modules[name]
        import dftrace_ai as again
        with again.ai.compute.step:
            pass
        dftrace_ai.finalize()
        again.finalize()
    """)
    names = [t.names for t in done.traces()]
    assert sum(n["forward"] for n in names) == 1
