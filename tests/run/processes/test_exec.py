"""A process that becomes another program: what it was before is dead, though its number lives."""

from __future__ import annotations

from conftest import RunScript

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
