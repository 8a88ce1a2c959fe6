"""Worker processes: multiprocessing in every start method, subprocesses, executors."""

from __future__ import annotations

import pytest
from conftest import RunScript
from perfetto.trace_file import read

POOL = """
import json, multiprocessing as mp, os, sys
import dftrace_ai
from dftrace_ai import ai

@ai.data.item
def work(i):
    with ai.data.preprocess(step=i):
        return os.getpid()

if __name__ == "__main__":
    method, how = sys.argv[1:]
    dftrace_ai.initialize()
    context = mp.get_context(method)
    with ai.pipeline.train:
        pool = context.Pool(2)
        pids = sorted(set(pool.map(work, range(40), chunksize=1)))
        if how == "terminate":
            pool.terminate()
        else:
            pool.close()
        pool.join()
    dftrace_ai.finalize()
    print(json.dumps(pids))
"""


@pytest.mark.parametrize("how", ["close", "terminate"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools(run_script: RunScript, method: str, how: str) -> None:
    done = run_script(POOL, args=[method, how])
    parent, children = done.split()
    assert parent.tree() == [["train", []]]
    assert sorted(t.events[0].pid for t in children) == done.said[0]
    steps = [e.user["step"] for t in children for e in t.named("preprocess")]
    assert sorted(steps) == list(range(40))
    assert len({t.header["run"] for t in [parent, *children]}) == 1
    for t in children:
        assert t.tree() == [["item", [["preprocess", []]]]] * len(t.named("item"))
        assert t.header["time_base_us"] == parent.header["time_base_us"]


def test_a_process_that_raises_and_one_that_is_killed(run_script: RunScript) -> None:
    done = run_script("""
        import multiprocessing as mp, os, signal
        import dftrace_ai
        from dftrace_ai import ai

        def work(how):
            for i in range(500):
                with ai.data.item:
                    pass
            if how == "raise":
                raise RuntimeError("worker fails")
            if how == "kill":
                ai.compute.forward.start()
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "exit":
                os._exit(3)

        if __name__ == "__main__":
            dftrace_ai.initialize()
            context = mp.get_context("fork")
            pool = [context.Process(target=work, args=(h,)) for h in ("raise", "kill", "exit")]
            for p in pool:
                p.start()
            for p in pool:
                p.join()
            with ai.compute.step:
                pass
            dftrace_ai.finalize()
    """)
    parent, children = done.split()
    assert parent.names == {"step": 1}
    assert [t.names["item"] for t in children] == [500, 500, 500]
    open_ends = [t.one("forward").ph for t in children if t.names["forward"]]
    assert open_ends == ["B"]


def test_subprocesses_find_the_run(run_script: RunScript) -> None:
    done = run_script("""
        import json, subprocess, sys
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize()
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
    item, train = children[0].one("item"), parent.one("train")
    assert item.ts_ns is not None
    assert train.ts_ns is not None
    assert train.ts_ns < item.ts_ns
    assert item.end_ns < train.end_ns


def test_a_subprocess_that_initialises_itself_stays_in_the_run(run_script: RunScript) -> None:
    done = run_script("""
        import subprocess, sys
        import dftrace_ai
        from dftrace_ai import ai

        if len(sys.argv) > 1:
            dftrace_ai.initialize()
            with ai.data.item:
                pass
            dftrace_ai.finalize()
        else:
            with dftrace_ai.tracing():
                with ai.pipeline.train:
                    subprocess.run([sys.executable, __file__, "child"], check=True)
    """)
    parent, children = done.split()
    assert (parent.names, [t.names for t in children]) == ({"train": 1}, [{"item": 1}])
    assert children[0].header["run"] == parent.header["run"]


def test_executors(run_script: RunScript) -> None:
    done = run_script("""
        import multiprocessing as mp
        from concurrent.futures import ProcessPoolExecutor
        import dftrace_ai
        from dftrace_ai import ai

        @ai.data.item
        def work(i):
            return i

        if __name__ == "__main__":
            with dftrace_ai.tracing():
                for method in ("fork", "spawn"):
                    with ProcessPoolExecutor(2, mp_context=mp.get_context(method)) as pool:
                        assert list(pool.map(work, range(10))) == list(range(10))
                with ai.compute.step:
                    pass
    """)
    parent, children = done.split()
    assert parent.names == {"step": 1}
    assert sum(t.names["item"] for t in children) == 20


def test_the_childs_file_format_follows_the_run(run_script: RunScript) -> None:
    done = run_script("""
        import subprocess, sys
        import dftrace_ai
        from dftrace_ai import ai

        with dftrace_ai.tracing(compression="none", timestamps="epoch_us"):
            with ai.pipeline.train:
                code = "from dftrace_ai import ai\\nwith ai.data.item: pass"
                subprocess.run([sys.executable, "-c", code], check=True)
    """)
    parent, (child,) = done.split()
    assert [t.path.suffix for t in (parent, child)] == [".pfw", ".pfw"]
    assert child.header["timestamps"] == "epoch_us"


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
