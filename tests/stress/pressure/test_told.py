"""What is told of a trace that could not be completed is what recovery brings back."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conftest import clean_environment, read_all, trace_files

from stress.judge import judge_counts

if TYPE_CHECKING:
    from pathlib import Path

    from stress.conftest import FaultRow
    from stress.pressure.program import Pressed
    from stress.pressure.shim import Shim

pytest_plugins = ["stress.pressure.program"]

# More than a block, in more than one unit, of every kind; some of it stays open.
WORK = """
import errno
shim = Shim()
def work(n):
    spans(n)
    for step in range(5):
        ai.instant("now", args={"step": step})
        ai.counter("loss", values={"value": step})
    ai.pipeline.train.start()
    ai.pipeline.epoch.start()
    thread = threading.Thread(target=lambda: (spans(2000, ai.data.item), ai.data.item.start()))
    thread.start()
    thread.join()
"""
# Beside the spans `forward`.
ALSO = {"item": 2001, "train": 1, "epoch": 1}
# What is in the way, how many spans `forward` are made, and how.
CASES = {
    "the disk is full from the first event on": (
        33_000,
        """
run = dftrace_ai.initialize(flush_interval_ms=5)
shim.write_errno = errno.ENOSPC
work(30_000)
refused(run)
spans(3000)
""",
    ),
    "writing fails after some was written": (
        13_000,
        """
run = dftrace_ai.initialize(flush_interval_ms=60_000, write_buffer_bytes=65536)
spans(3000)
run.flush()
shim.write_errno = errno.EIO
work(10_000)
""",
    ),
    "writing hangs after some was written": (
        13_000,
        """
run = dftrace_ai.initialize(flush_interval_ms=60_000, finalize_timeout_s=0.1)
spans(3000)
run.flush()
shim.writes_hang = 1
work(10_000)
""",
    ),
    "the disk is full when a flight recorder is dumped": (
        1000,
        """
run = dftrace_ai.initialize(flight_recorder=True, spool_bytes=1 << 20)
spans(20_000, ai.compute.backward)
shim.write_errno = errno.ENOSPC
work(1000)
try:
    dftrace_ai.dump("asked")
except OSError:
    pass
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_as_many_as_told_are_recovered(
    pressed: Pressed, shim: Shim, spools: Path, traces: Path, case: str, fault_row: FaultRow
) -> None:
    forward, source = CASES[case]
    done = pressed(
        WORK + source + "dftrace_ai.finalize()\nsay(stats=run.stats())\nos._exit(0)\n",
        env={"DFTRACE_SPOOL_DIR": str(spools)},
    )
    shim.write_errno = shim.writes_hang = 0
    stats = done.said[0]["stats"]
    assert f"; {stats['lost_lines']} events are kept in {stats['spool_path']}" in done.stderr
    command = [sys.executable, "-m", "dftrace_ai.cli", "recover", str(traces)]
    environment = clean_environment() | {"DFTRACE_SPOOL_DIR": str(spools)}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (trace,) = read_all(trace_files(traces))
    assert trace.footer["events"] - stats["events"] == stats["lost_lines"] > 1000
    assert trace.footer["unfinished"] == 3
    assert "written again" not in done.stderr
    with fault_row(f"{case}, recovered afterwards") as row:
        row.add(judge_counts([trace], {"forward": forward} | ALSO))


def test_nothing_is_written_again_before_it_is(pressed: Pressed) -> None:
    """Full units wake the writer, which then has nothing to write out and cannot fail."""
    done = pressed(
        WORK
        + """
run = dftrace_ai.initialize(flush_interval_ms=60_000)
shim.write_errno = errno.ENOSPC
spans(100)
assert refused(run) == errno.ENOSPC
for _ in range(20):
    spans(2000)
    threading.Thread(target=spans, args=(1,)).start()
    assert refused(run) == errno.ENOSPC
print("full", file=sys.stderr, flush=True)
shim.write_errno = 0
run.flush()
"""
    )
    before, _, after = done.stderr.partition("full\n")
    assert before.count("cannot be written") == 1
    assert "written again" not in before
    assert after.count("is written again") == 1
