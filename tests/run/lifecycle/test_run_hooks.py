"""What begins and ends with a run, and that a subinterpreter has none."""

from __future__ import annotations

import pytest
from conftest import RunScript

ORDER = """
import os, sys
import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.run.hooks import Hook, register

def told(what):
    return lambda run: print(os.getpid() == parent, what, flush=True)

def fails(what):
    def fail(run):
        raise RuntimeError(what)
    return fail

parent = os.getpid()
register(Hook("first", told("first begins"), told("first ends"), told("first is forked")))
register(Hook("broken", fails("no begin"), fails("no end"), fails("no fork")))
with dftrace_ai.tracing() as run:
    register(Hook("late", told("late begins"), lambda run: ai.instant("the last word")))
    child = os.fork()
    if child == 0:
        with ai.data.item:
            pass
        sys.exit(0)
    os.waitpid(child, 0)
with dftrace_ai.tracing():
    with ai.data.item:
        pass
"""


def test_hooks_begin_in_order_end_in_reverse_and_fail_alone(run_script: RunScript) -> None:
    run = run_script(ORDER)
    assert run.stdout.split("\n")[:-1] == [
        "True first begins",
        "True late begins",
        "False first is forked",
        "False first ends",
        "True first ends",
        "True first begins",
        "True late begins",
        "True first ends",
    ]
    assert "broken could not begin, and the run goes on: no begin" in run.stderr
    assert "broken could not end, and the run goes on: no end" in run.stderr
    assert "broken could not go on in a forked child, and the run goes on: no fork" in run.stderr
    words = [event for trace in run.traces() for event in trace.of("i")]
    assert [event.name for event in words] == ["the last word"] * 3


def test_a_hook_may_end_the_run_by_a_signal(run_script: RunScript) -> None:
    run = run_script(
        """
        import os, signal
        import dftrace_ai
        from dftrace_ai import ai
        from dftrace_ai.run.hooks import Hook, register

        calls = []

        def end(run):
            calls.append("end")
            if len(calls) == 1:
                os.kill(os.getpid(), signal.SIGUSR1)

        signal.signal(signal.SIGUSR1, lambda *_: dftrace_ai.finalize())
        register(Hook("interrupted", on_end=end))
        dftrace_ai.initialize()
        with ai.compute.step:
            pass
        dftrace_ai.finalize()
        print(calls, dftrace_ai.dump())
        """
    )
    assert run.stdout == "['end', 'end'] None\n"
    assert len(run.trace().spans) == 1


def test_what_has_begun_ends_though_the_package_was_imported_a_second_time(
    run_script: RunScript,
) -> None:
    run = run_script(
        """
        import sys, threading
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize(system_counters_s=0.05)
        for name in [name for name in sys.modules if name.startswith("dftrace_ai")]:
            if name != "dftrace_ai._native":
                del sys.modules[name]
        import dftrace_ai
        from dftrace_ai import ai
        samplers = [t for t in threading.enumerate() if t.name == "dftrace-counters"]
        with ai.compute.step:
            pass
        dftrace_ai.finalize()
        print(len(samplers), samplers[0].is_alive())
        """
    )
    assert run.stdout == "1 False\n"
    assert len(run.trace().of("C")) >= 3


PROGRAM = """
import json, os, sys

def made():
    if sys.version_info >= (3, 13):
        import _interpreters
        return _interpreters, _interpreters.create("legacy")
    import _xxsubinterpreters
    # Not isolated: such a one may import every extension, unless that refuses by itself.
    return _xxsubinterpreters, _xxsubinterpreters.create(isolated=False)

first = sys.argv[1] == "main"
if first:
    import dftrace_ai
    from dftrace_ai import ai
    dftrace_ai.initialize()
    with ai.compute.forward:
        pass
interpreters, other = made()
interpreters.run_string(other, '''
import os
for name in ("dftrace_ai.annotation", "dftrace_ai._native", "dftrace_ai.run"):
    try:
        __import__(name)
        said = "imported"
    except ImportError as error:
        said = str(error)
    os.write(1, (said + "\\\\n").encode())
''')
interpreters.destroy(other)
import dftrace_ai
from dftrace_ai import ai
dftrace_ai.initialize()
with ai.compute.forward:
    pass
dftrace_ai.finalize()
"""


@pytest.mark.parametrize("first", ["main", "other"])
def test_the_import_is_refused_with_a_reason(run_script: RunScript, first: str) -> None:
    done = run_script(PROGRAM, args=[first])
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("dftrace_ai cannot be imported in a subinterpreter")
    assert done.trace(perfetto=False).names == {"forward": 2 if first == "main" else 1}
