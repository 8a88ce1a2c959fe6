"""Threads, and programs that are started or become others: who finds the run, and what they leave."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from conftest import RunScript, Traced
from perfetto.trace_file import read

from dftrace_ai import ai


def test_subprocesses_find_the_run(run_script: RunScript) -> None:
    done = run_script("""
        import subprocess, sys
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize(compression="none", timestamps="epoch_us")
        code = "from dftrace_ai import ai\\nwith ai.data.item: pass"
        with ai.pipeline.train:
            for _ in range(2):
                subprocess.run([sys.executable, "-c", code], check=True)
        dftrace_ai.finalize()
        subprocess.run([sys.executable, "-c", code], check=True)
    """)
    parent, children = done.split()
    assert parent.names == {"train": 1}
    assert [t.names for t in children] == [{"item": 1}] * 2
    assert {t.header["ppid"] for t in children} == {done.pid}
    assert {t.header["run"] for t in children} == {parent.header["run"]}
    assert {t.footer["ended"] for t in children} <= {"exit", "finalize"}
    assert {(t.path.suffix, t.header["timestamps"]) for t in children} == {(".pfw", "epoch_us")}
    item, train = children[0].one("item"), parent.one("train")
    assert item.ts_ns is not None
    assert train.ts_ns is not None
    assert train.ts_ns < item.ts_ns
    assert item.end_ns < train.end_ns


def test_a_subprocess_with_another_version_of_the_package(run_script: RunScript) -> None:
    """It records nothing, says so, and goes on; what else it may find there is not its own, either."""
    done = run_script("""
        import json, os, subprocess, sys
        import dftrace_ai
        from dftrace_ai import ai

        code = "from dftrace_ai import ai\\nwith ai.data.item: print(1)"
        with dftrace_ai.tracing():
            with ai.pipeline.train:
                settings = json.loads(os.environ["DFTRACE_RUN_SETTINGS"])
                other = {**settings, "version": "0.0.1"}
                del other["core"]
                unknown = {k: v for k, v in other.items() if k != "version"}
                for found in (other, unknown, [], 7, None):
                    env = {**os.environ, "DFTRACE_RUN_SETTINGS": json.dumps(found)}
                    subprocess.run([sys.executable, "-c", code], check=True, env=env)
    """)
    assert done.said == [1] * 5
    assert done.stderr.count("DFTRACE_RUN is not understood") == 5
    assert done.trace(perfetto=False).names == {"train": 1}


def test_a_fork_server_that_is_older_than_the_run_is_told_of(run_script: RunScript) -> None:
    """Its workers have the environment of its start. One that comes later finds the run."""
    done = run_script("""
        import multiprocessing as mp, os
        import dftrace_ai
        from dftrace_ai import ai

        def work():
            with ai.data.item:
                pass

        def a_worker():
            process = mp.get_context("forkserver").Process(target=work)
            process.start()
            process.join()

        if __name__ == "__main__":
            for begun_before in range(3):
                if begun_before == 2:
                    os.environ["DFTRACE_LAUNCH"] = "as below dftrace run"
                with dftrace_ai.tracing(log_file=f"out/{begun_before}"):
                    with ai.compute.forward:
                        a_worker()
    """)
    assert done.stderr.count("fork server was started before this run") == 2
    mends = [line.split("; ")[1].split(" before")[0] for line in done.stderr.splitlines()]
    assert mends == ["call initialize", "import torch"]
    names = sorted((path.name[0], *read(path).names) for path in done.files)
    items = [("0", "item")] * 3
    assert names == [("0", "forward"), *items, ("1", "forward"), ("2", "forward")]


BECOMES_ITSELF = """
import json, os, sys
import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.live import snapshot

run = dftrace_ai.initialize(spool_dir="spools", flush_interval_ms=60_000)
life = int(sys.argv[1])
if life < 3:
    with ai.data.item(life=life):
        pass
    ai.compute.step.start()
    os.execv(sys.executable, [sys.executable, __file__, str(life + 1)])
with ai.compute.forward:
    (seen,) = snapshot(["out"]).processes
    print(json.dumps([[span.name for span in thread.open] for thread in seen.threads]))
dftrace_ai.finalize()
print(json.dumps([os.listdir("spools"), [n for n in os.listdir("out") if n.endswith("at")]]))
"""


def test_a_program_that_becomes_itself_completes_its_earlier_traces(run_script: RunScript) -> None:
    """It holds no spool of theirs any more, and nobody looks at them as at what runs."""
    done = run_script(BECOMES_ITSELF, args=["0"])
    assert done.said == [[["forward"]], [[], []]]
    assert done.stderr == ""
    traces = done.traces(perfetto=False)
    assert {trace.events[0].pid for trace in traces} == {done.pid}
    assert sorted(name for trace in traces for name in trace.names) == (
        ["forward", *["item"] * 3, *["step"] * 3]
    )
    ends = sorted(trace.footer["ended"] for trace in traces)
    assert ends == ["died", "died", "died", "finalize"]


SEEN_WHILE_IT_IS_TRUE = """
import json, os, subprocess, sys
import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.live import snapshot

run = dftrace_ai.initialize(spool_dir="spools")
to_child, from_parent = os.pipe()
os.set_inheritable(to_child, True)

def record():
    ai.data.item.start()

program = ["/bin/sh", "-c", f"read line <&{to_child}"]
child = subprocess.Popen(program, preexec_fn=record, pass_fds=[to_child])
with ai.compute.forward:
    seen = {process.pid: process.state for process in snapshot(["out"]).processes}
print(json.dumps(seen == {os.getpid(): "alive", child.pid: "dead"}))
os.write(from_parent, b"end\\n")
child.wait()
dftrace_ai.finalize()
print(json.dumps([os.listdir("spools"), [n for n in os.listdir("out") if n.endswith("at")]]))
"""


def test_a_child_that_recorded_before_it_became_another_program(run_script: RunScript) -> None:
    done = run_script(SEEN_WHILE_IT_IS_TRUE)
    assert done.said == [True, [[], []]]
    own, (child,) = done.split(perfetto=False)
    assert own.names == {"forward": 1}
    assert child.one("item").args["unfinished"] is True


def test_a_new_thread_starts_outermost_whatever_its_starter_has_open(traced: Traced) -> None:
    def work() -> None:
        with ai.data.item:
            pass

    with traced() as rec, ai.pipeline.train:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    item = rec.trace.one("item")
    assert (item.p_idx, item.level) == (0, 1)


def test_the_first_span_of_a_thread_runs_no_python_in_which_a_signal_would_be_handled(
    traced: Traced,
) -> None:
    called: list[str] = []

    def work() -> None:
        node = ai.data.item
        sys.setprofile(lambda frame, event, _: called.append(f"{event} {frame.f_code.co_name}"))
        with node:
            pass
        sys.setprofile(None)

    with traced() as rec:
        thread = threading.Thread(target=work, name="reader")
        thread.start()
        thread.join()
    assert [one for one in called if one.startswith(("call", "return"))] == []
    assert called  # it was listened to
    assert set(rec.trace.thread_names.values()) >= {"reader"}


def test_a_pool_that_outlives_two_runs_writes_to_both(traced: Traced) -> None:
    def work(i: int) -> None:
        with ai.data.item(image_idx=i):
            pass

    with ThreadPoolExecutor(3) as pool:
        with traced() as one:
            list(pool.map(work, range(30)))
        list(pool.map(work, range(5)))
        with traced() as two:
            list(pool.map(work, range(100, 120)))
    assert sorted(e.user["image_idx"] for e in one.trace.spans) == list(range(30))
    assert sorted(e.user["image_idx"] for e in two.trace.spans) == list(range(100, 120))
