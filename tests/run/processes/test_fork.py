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


def test_children_that_never_finalise_are_adopted(run_script: RunScript) -> None:
    """_exit, a signal, an uncaught exception: all that was recorded is in the child's file."""
    done = run_script(
        PRELUDE
        + """
import signal
dftrace_ai.initialize()
children = []
for way in range(3):
    pid = os.fork()
    if pid == 0:
        for i in range(1000):
            with ai.data.item(step=i) if i % 100 == 0 else ai.data.item:
                pass
        ai.pipeline.train.start()
        if way == 0:
            os._exit(0)
        if way == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        os.abort()
    os.waitpid(pid, 0)
with ai.compute.step:
    pass
dftrace_ai.finalize()
"""
    )
    parent, children = done.split()
    assert parent.names == {"step": 1}
    assert len(children) == 3
    for child in children:
        assert child.footer["ended"] == "died"
        assert child.names == {"item": 1000, "train": 1}
        assert [e.user["step"] for e in child.named("item") if e.user] == list(range(0, 1000, 100))
        assert child.one("train").args["unfinished"] is True
        assert child.footer["unfinished"] == 1


def test_fork_inside_open_spans(run_script: RunScript) -> None:
    """The parent's spans end in the parent; the child leaves its copies without harm."""
    done = run_script(
        PRELUDE
        + """
dftrace_ai.initialize()
with ai.pipeline.train, ai.pipeline.epoch:
    pid = os.fork()
    if pid == 0:
        with ai.data.item:
            pass
    else:
        with ai.compute.step:
            pass
if pid == 0:
    with ai.data.preprocess:
        pass
    dftrace_ai.finalize()
    os._exit(0)
wait(pid)
dftrace_ai.finalize()
"""
    )
    parent, (child,) = done.split()
    assert parent.tree() == [["train", [["epoch", [["step", []]]]]]]
    assert child.names["item"] == child.names["preprocess"] == 1
    assert child.one("preprocess").level == 1
    assert child.footer["unmatched_stops"] == 0


def test_children_of_children(run_script: RunScript) -> None:
    done = run_script(
        PRELUDE
        + """
dftrace_ai.initialize()
depth = 0
while depth < 4:
    pid = os.fork()
    if pid:
        break
    depth += 1
with ai.data.item(step=depth):
    pass
if depth < 4:
    os.waitpid(pid, 0)
if depth:
    os._exit(0)
dftrace_ai.finalize()
"""
    )
    traces = done.traces()
    assert sorted(t.one("item").user["step"] for t in traces) == [0, 1, 2, 3, 4]
    assert len({t.header["run"] for t in traces}) == 1


def test_fork_from_a_thread_while_others_trace(run_script: RunScript) -> None:
    done = run_script(
        PRELUDE
        + """
dftrace_ai.initialize(overflow="wait")
stop = threading.Event()
began = threading.Barrier(4)

def busy():
    with ai.comm.barrier:
        began.wait()
    while not stop.wait(0.0002):  # the pace only keeps the trace small
        with ai.compute.step:
            pass

def forks():
    with ai.pipeline.train:
        pids = []
        for n in range(8):
            pid = os.fork()
            if pid == 0:
                for i in range(50):
                    with ai.data.item(step=i):
                        pass
                dftrace_ai.finalize()
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            wait(pid)

pool = [threading.Thread(target=busy) for _ in range(3)]
for t in pool:
    t.start()
began.wait()
f = threading.Thread(target=forks)
f.start()
f.join()
stop.set()
for t in pool:
    t.join()
dftrace_ai.finalize()
"""
    )
    parent, children = done.split(perfetto=False)
    assert parent.names["barrier"] == 3
    assert parent.names["train"] == 1
    assert parent.footer["dropped"] == 0
    assert len(children) == 8
    for child in children:
        assert [e.user["step"] for e in child.named("item")] == list(range(50))
        assert set(child.names) <= {"item", "train"}


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
import dftrace_ai.run.settings
from dftrace_ai.run.hooks import Hook, register

there, over = threading.Event(), threading.Event()

def waits(*_):
    if os.getpid() == parent and not over.is_set():
        there.set()
        over.wait()

parent = os.getpid()
if sys.argv[1] == "before":  # recording is turned on
    dftrace_ai.run.settings.check_directory = waits
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
