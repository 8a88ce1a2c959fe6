"""What a run has to say ends no training, whatever has become of the program's logging."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import RunScript

import dftrace_ai

TELLS = """
import json, logging, sys
import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.inspect.output.log_files import tell_on_stderr
from dftrace_ai.run.hooks import Hook, register

class Raises(logging.Handler):
    def emit(self, record):
        raise RuntimeError("mine")
    def write(self, text):
        raise RuntimeError("mine")
    def filter(self, record):
        raise RuntimeError("mine")

run = dftrace_ai.initialize(
    spool_bytes=1 << 20, log_file="out/trace", overflow="drop", system_counters_s=None
)
{spoilt}
ai.compute.forward.stop()
register(Hook("a hook", on_begin=lambda run: 1 / 0))
dftrace_ai.initialize(log_file="elsewhere/trace")
tell_on_stderr("a tensor")
with ai.compute.step:
    for _ in range(100_000):
        ai.compute.forward.update(x=_)
        with ai.compute.forward:
            pass
dftrace_ai.finalize()
print(json.dumps([run.stats()["dropped"] > 0, run.stats()["error"]]))
"""


@pytest.mark.parametrize(
    "spoilt",
    [
        "sys.stderr.close()",
        "sys.stderr = Raises()",
        "logging.getLogger().addHandler(Raises())",
        "logging.getLogger('dftrace_ai').addFilter(Raises())",
    ],
    ids=["closed", "stream", "handler", "filter"],
)
def test_a_program_whose_logging_raises(run_script: RunScript, spoilt: str) -> None:
    done = run_script(TELLS.replace("{spoilt}", spoilt))
    assert done.said == [[True, ""]]
    # By number of the file, which the program has left open.
    for line in (
        "dftrace: forward.stop() without start(): ignored, and counted\n",
        "dftrace: a hook could not begin, and the run goes on: division by zero\n",
        "dftrace: a run is on and goes on with its own settings: log_file is ",
        " events were dropped: the spool of 1048576 bytes was full",
    ):
        assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert done.trace(perfetto=False).footer["unmatched_stops"] == 1


def test_program_ends_while_another_thread_tells_of_a_loss(run_script: RunScript) -> None:
    done = run_script("""
        import logging, threading, time
        import dftrace_ai
        from dftrace_ai import ai

        asked = threading.Event()

        def slow(record):
            asked.set()
            time.sleep(0.3)
            return True

        logging.getLogger("dftrace_ai").addFilter(slow)
        dftrace_ai.initialize(spool_bytes=1 << 20, overflow="drop", system_counters_s=None)
        with ai.compute.step:
            for number in range(100_000):
                ai.compute.forward.update(x=number)
                with ai.compute.forward:
                    pass
        threading.Thread(target=dftrace_ai.finalize, daemon=True).start()
        asked.wait()
    """)
    assert done.stderr.count(" events were dropped: the spool of 1048576 bytes was full") == 1


def test_advice_is_none_that_was_taken(run_script: RunScript) -> None:
    """More threads live at once than the spool has room for: waiting would not help them."""
    done = run_script("""
        import threading
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize(spool_bytes=1 << 20, overflow="wait", system_counters_s=None)
        all_there = threading.Barrier(40)

        def work():
            with ai.compute.forward:
                pass
            all_there.wait()

        threads = [threading.Thread(target=work) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        dftrace_ai.finalize()
    """)
    assert "each thread takes 64 KiB of it, which cannot be waited for: raise spool_bytes" in (
        done.stderr
    )
    assert "overflow=" not in done.stderr


def test_nothing_is_said_in_another_way() -> None:
    package = Path(dftrace_ai.__file__).parent
    # Functions of dftracer's that make loggers are for its users to call.
    files = (p for p in package.rglob("*.py") if package / "compat" not in p.parents)
    # Those of Dask are only silenced.
    says = {
        p.name
        for p in files
        if re.search(r'getLogger\((?!"distributed"\))', p.read_text(encoding="utf-8"))
    }
    assert says == {"wording.py"}
