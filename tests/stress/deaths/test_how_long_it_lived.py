"""A process that hung before it was killed: its trace tells until when it lived, not just its last event."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from conftest import RunScript

from dftrace_ai.analysis.trace_facts import facts_of
from dftrace_ai.spools.recovery import adopt_dead

LONG_NS = 300_000_000

HANGS = """
    import os, signal
    import dftrace_ai
    from dftrace_ai import ai

    os.mkdir("spools")
    dftrace_ai.initialize(spool_dir="spools", flush_interval_ms=20)
    with ai.compute.forward:
        pass
    ai.comm.all_reduce.start()
    print("ready", flush=True)
    signal.pause()
"""


def test_info_tells_how_long_a_process_lived_that_hung(run_script: RunScript) -> None:
    lived_ns = 0

    def hung_for_long(process: subprocess.Popen[str]) -> None:
        nonlocal lived_ns
        (spool,) = Path(os.fsdecode(process.args[1])).with_name("spools").iterdir()  # type: ignore[index]
        began_ns = spool.stat().st_mtime_ns
        while lived_ns < LONG_NS:
            time.sleep(0.02)
            lived_ns = spool.stat().st_mtime_ns - began_ns
        process.kill()

    outcome = run_script(HANGS, status=-9, stop=hung_for_long)
    adopt_dead(outcome.folder)
    (file,) = facts_of([outcome.folder]).files
    assert file.ended == "died"
    assert file.length_us is not None
    assert file.length_us * 1000 > LONG_NS
    trace = outcome.trace(perfetto=False)
    (still_open,) = trace.of("B")
    assert still_open.name == "all_reduce"
    assert trace.footer["alive_us"] * 1000 > (still_open.ts_ns or 0)
