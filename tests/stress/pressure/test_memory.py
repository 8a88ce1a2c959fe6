"""Memory that is refused: what dftrace cannot do then it does later, and never ends the training."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import read_all
from sampling import share_of

import dftrace_ai.spools.recovery

if TYPE_CHECKING:
    from stress.pressure.program import Pressed

# Each kind of line, tracks of their own, names and arguments: all that makes the writer ask for memory.
WORK = """
def work(run, name):
    for step in range(8):
        ai.compute.forward.update(step=step)
        spans(1)
        ai.data.io.start()
        ai.compute.start()
        ai.data.io.stop()
        ai.compute.stop()
        ai.instant(f"{name}-{step}")

def threads(run, number):
    for n in range(3):
        both = [threading.Thread(target=work, args=(run, f"{number}-{n}-{k}")) for k in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        refused(run)

WORK_EVENTS = 3 * 2 * 8 * 4
"""


COMPRESSIONS = ["none", "gzip", "zstd"]


@pytest.mark.sampled
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_allocation_of_the_writer_fails_once(
    pressed: Pressed, traces: Path, compression: str
) -> None:
    """One run after the other, in each of which more allocations go well before one fails.

    Each number is that of some compression.
    """
    every = round(1 / share_of(1 / 3))
    first = 1 + COMPRESSIONS.index(compression) % every
    done = pressed(
        WORK
        + f"""
shim = Shim()
number, failed = {first - every}, True
while failed:
    number += {every}
    run = dftrace_ai.initialize(
        log_file=f"{traces}/{{number}}/trace", compression="{compression}",
        flush_interval_ms=60_000, spool_bytes=4 << 20,
    )
    spans(1)
    run.flush()
    shim.drain_fails_at = number
    threads(run, number)
    failed = shim.drain_fails_at == 0
    shim.drain_fails_at = 0
    dftrace_ai.finalize()
    stats = run.stats()
    assert (stats["events"], stats["dropped"], stats["error"]) == (WORK_EVENTS + 1, 0, ""), stats
say(number=number)
"""
    )
    assert done.said[0]["number"] > 50
    numbers = range(first, done.said[0]["number"] + 1, every)
    assert {folder.name for folder in traces.iterdir()} == {*map(str, numbers)}
    found = read_all([next((traces / str(number)).glob("*.pfw*")) for number in numbers])
    assert {trace.names["forward"] for trace in found} == {49}


@pytest.mark.parametrize(
    "settings",
    ["compression='gzip'", "compression='zstd'", "compression='none'"],
)
def test_memory_fails_while_another_file_is_begun(pressed: Pressed, settings: str) -> None:
    """Since the one before was removed: what was in it is counted once."""
    done = pressed(
        f"""
shim = Shim()
number, failed = 0, True
while failed:
    number += 1
    run = dftrace_ai.initialize(
        log_file=f"{{number}}/trace", flush_interval_ms=60_000, spool_bytes=4 << 20, {settings}
    )
    spans(5)
    run.flush()
    (trace,) = Path(str(number)).glob("*.pfw*")
    trace.unlink()
    spans(40)
    shim.drain_fails_at = number
    refused(run)
    failed = shim.drain_fails_at == 0
    shim.drain_fails_at = 0
    spans(2)
    dftrace_ai.finalize()
    stats = run.stats()
    assert (stats["events"], stats["lost_lines"], stats["dropped"]) == (42, 5, 0), (number, stats)
say(number=number)
"""
    )
    assert done.said[0]["number"] > 10


def test_no_memory_at_all_for_the_writer_for_a_while(pressed: Pressed) -> None:
    """Everything waits in the spool and is written when there is memory again."""
    done = pressed(
        WORK
        + """
shim = Shim()
shim.sampler_too = 1
with dftrace_ai.tracing(flush_interval_ms=1, lines_hz=1000) as run:
    shim.drain_fails_at = -1
    threads(run, 0)
    error = refused(run)
    until(lambda: shim.drain_allocated > 100)
    shim.drain_fails_at = 0
    until(lambda: run.stats()["written_spans"] == WORK_EVENTS * 3 // 4)
say(error=error)
"""
    )
    assert done.said[0]["error"] != 0
    trace = done.trace(perfetto=False)
    assert trace.footer["events"] == 192
    assert trace.footer["dropped"] == 0


@pytest.mark.parametrize(
    "work",
    [
        'ai.compute.forward.update(blob="x" * 4_000_000)\nwith_limit(spans, 5)',
        "with_limit(starts, 20_000)",
        'name = "n" * 4_000_000\nwith_limit(lambda: ai.instant(name))',
        'blob = "x" * 4_000_000\nspans(3)\nwith_limit(lambda: ai.instant("i", {"blob": blob}))',
    ],
    ids=["argument", "deep", "name", "instant"],
)
def test_no_memory_on_the_traced_thread(pressed: Pressed, work: str) -> None:
    """What would need it is left out and counted; the thread goes on, without an exception."""
    done = pressed(
        f"""
import resource

def with_limit(call, *args):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 10), limits[1]))
    try:
        call(*args)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)

def starts(n):
    for _ in range(n):
        ai.pipeline.train.start()

with dftrace_ai.tracing(max_arg_bytes=8 << 20) as run:
    spans(10)
{work.replace(chr(10), chr(10) + "    ").join(["    ", ""])}
    spans(10, ai.compute.backward)
say(stats=run.stats())
"""
    )
    trace = done.trace(perfetto=False)
    assert trace.names["backward"] == 10
    lost = trace.footer["dropped"] + trace.footer["args_sanitised"]
    assert lost > 0


def test_no_memory_for_finalize(pressed: Pressed, spools: Path) -> None:
    """The spool is kept for a reader with more of it."""
    done = pressed(
        """
        run = dftrace_ai.initialize(flush_interval_ms=60_000)
        spans(10)
        run.flush()
        for step in range(300):
            ai.compute.backward.update(step=step)
            spans(1, ai.compute.backward)
        Shim().drain_fails_at = -1
        dftrace_ai.finalize()
        Shim().drain_fails_at = 0
        say(stats=run.stats())
        """,
        env={"DFTRACE_SPOOL_DIR": str(spools)},
    )
    stats = done.said[0]["stats"]
    assert os.strerror(errno.ENOMEM) in stats["error"]
    assert stats["spool_path"] in done.stderr
    assert dftrace_ai.spools.recovery.adopt_dead(done.folder).failed == []
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 10, "backward": 300}
    assert list(spools.iterdir()) == []
