"""How a process may end without finalize, and what stays."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from conftest import RunScript, trace_files
from perfetto import engine
from perfetto.trace_file import read_unfinished

WORK = """
import atexit, os, signal, sys, threading
import dftrace_ai
from dftrace_ai import ai

dftrace_ai.initialize()
for i in range(5000):
    with ai.compute.forward(step=i) if i % 1000 == 0 else ai.compute.forward:
        pass
"""


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
