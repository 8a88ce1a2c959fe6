"""os.fork: the child continues in a file of its own, whatever way it ends."""

from __future__ import annotations

import pytest
from conftest import RunScript

PRELUDE = """
import json, os, sys, threading
import dftrace_ai
from dftrace_ai import ai

def wait(pid):
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_forked_child_has_its_own_file(run_script: RunScript) -> None:
    done = run_script(
        PRELUDE
        + """
dftrace_ai.initialize()
with ai.data.item(step=0):
    pass
pid = os.fork()
if pid == 0:
    with ai.data.item(step=1), ai.compute.forward:
        pass
    dftrace_ai.finalize()
    os._exit(0)
with ai.data.item(step=2):
    pass
wait(pid)
dftrace_ai.finalize()
print(json.dumps(pid))
"""
    )
    parent, (child,) = done.split()
    assert child.events[0].pid == done.said[0]
    assert [e.user["step"] for e in parent.named("item")] == [0, 2]
    assert child.tree() == [["item", [["forward", []]]]]
    assert child.one("item").user == {"step": 1}
    assert child.header["ppid"] == parent.header["pid"]
    assert child.header["run"] == parent.header["run"]
    assert child.header["time_base_us"] == parent.header["time_base_us"]
    assert (parent.footer["ended"], child.footer["ended"]) == ("finalize", "finalize")
    first, last = parent.named("item")
    inside = child.one("item")
    assert first.ts_ns is not None
    assert inside.ts_ns is not None
    assert first.ts_ns < inside.ts_ns


@pytest.mark.parametrize("settings", ["", "process_id=77"])
def test_the_path_in_a_child_is_that_of_its_own_file(run_script: RunScript, settings: str) -> None:
    done = run_script(
        PRELUDE
        + f"""
run = dftrace_ai.initialize({settings})
with ai.data.item:
    pass
run.flush()
before = run.path
pid = os.fork()
if pid == 0:
    said = [run.path]
    with ai.data.item:
        said.append(run.path)
    run.flush()
    print(json.dumps([*said, run.path]), flush=True)
    os._exit(0)
wait(pid)
print(json.dumps([before, run.path]))
"""
    )
    child, parent = done.said
    assert len(set(child)) == len(set(parent)) == 1
    assert {*child, *parent} == {str(trace.path) for trace in done.traces()}


def test_fork_from_a_thread_that_is_not_the_first(run_script: RunScript) -> None:
    done = run_script(
        PRELUDE
        + """
dftrace_ai.initialize(overflow="wait")

def forks():
    with ai.pipeline.train:
        for n in range(4):
            pid = os.fork()
            if pid == 0:
                for i in range(50):
                    with ai.data.item(step=i):
                        pass
                dftrace_ai.finalize()
                os._exit(0)
            wait(pid)

with ai.comm.barrier:
    thread = threading.Thread(target=forks)
    thread.start()
    thread.join()
dftrace_ai.finalize()
"""
    )
    parent, children = done.split(perfetto=False)
    assert parent.names == {"barrier": 1, "train": 1}
    assert [[e.user["step"] for e in child.named("item")] for child in children] == [
        [*range(50)]
    ] * 4
    assert {name for child in children for name in child.names} <= {"item", "train"}


def test_arguments_and_switches_are_inherited(run_script: RunScript) -> None:
    done = run_script(
        PRELUDE
        + """
dftrace_ai.initialize()
ai.update(epoch=3)
ai.comm.disable()
pid = os.fork()
if pid == 0:
    with ai.data.item, ai.comm.send:
        pass
    ai.data.update(step=1)
    with ai.data.item:
        pass
    os._exit(0)
wait(pid)
with ai.data.item:
    pass
dftrace_ai.finalize()
"""
    )
    parent, (child,) = done.split()
    assert [e.user for e in child.spans] == [{"epoch": 3}, {"epoch": 3, "step": 1}]
    assert parent.one("item").user == {"epoch": 3}


def test_fork_before_any_event_and_after_finalize(run_script: RunScript) -> None:
    done = run_script(
        PRELUDE
        + """
dftrace_ai.initialize()
pid = os.fork()
if pid == 0:
    with ai.data.item:
        pass
    sys.exit(0)
wait(pid)
dftrace_ai.finalize()
pid = os.fork()
if pid == 0:
    with ai.data.item:
        pass
    dftrace_ai.finalize()
    os._exit(0)
wait(pid)
"""
    )
    (child,) = done.traces()
    assert child.events[0].pid != done.pid
    assert child.names == {"item": 1}


def test_a_child_that_outlives_its_parent(run_script: RunScript) -> None:
    done = run_script(
        PRELUDE
        + """
dftrace_ai.initialize()
r, w = os.pipe()
with ai.pipeline.train:
    pass
pid = os.fork()
if pid == 0:
    os.close(w)
    with ai.data.item:
        pass
    os.read(r, 1)  # returns when the parent is gone
    with ai.data.preprocess:
        pass
    dftrace_ai.finalize()
    os._exit(0)
os.close(r)
dftrace_ai.finalize()
"""
    )
    parent, (child,) = done.split()
    assert parent.names == {"train": 1}
    assert child.names == {"item": 1, "preprocess": 1}
    assert child.footer["ended"] == "finalize"


BEGUN_MEANWHILE = """
import json, os, sys, threading
import dftrace_ai
from dftrace_ai import ai
import dftrace_ai.run.core_settings
from dftrace_ai.run.hooks import Hook, register

there, over = threading.Event(), threading.Event()

def waits(*_):
    if os.getpid() == parent and not over.is_set():
        there.set()
        over.wait()

parent = os.getpid()
if sys.argv[1] == "before":  # recording is turned on
    dftrace_ai.run.core_settings.check_directory = waits
else:
    register(Hook("waits", on_begin=waits))
thread = threading.Thread(target=lambda: dftrace_ai.initialize())
thread.start()
there.wait()
child = os.fork()
if child == 0:
    run = dftrace_ai.initialize()
    with ai.data.item:
        pass
    dftrace_ai.finalize()
    print(json.dumps([run.stats()["events"], "DFTRACE_RUN" in os.environ]), flush=True)
    os._exit(0)
os.waitpid(child, 0)
over.set()
thread.join()
with ai.compute.forward:
    pass
dftrace_ai.finalize()
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_child_that_is_forked_while_another_thread_begins_the_run(
    run_script: RunScript, moment: str
) -> None:
    """That thread is not in the child: nobody there ends what it began."""
    done = run_script(BEGUN_MEANWHILE, args=[moment])
    assert done.said == [[1, False]]
    own, (child,) = done.split(perfetto=False)
    assert (own.names, child.names) == ({"forward": 1}, {"item": 1})
