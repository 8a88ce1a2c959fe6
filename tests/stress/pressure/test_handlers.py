"""Handlers of signals that begin, end or write a run while their thread does the same."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from dftrace_ai.spools.recovery import adopt_dead
from stress.judge import judge_counts

if TYPE_CHECKING:
    from pathlib import Path

    from stress.conftest import FaultRow
    from stress.pressure.program import Pressed

pytest_plugins = ["stress.pressure.program"]

# What may be called by the program, and by the handler of a signal that comes meanwhile.
CALLS = """
from dftrace_ai.run.lifecycle import current_run
shim = Shim()
CALLS = {
    "flush": lambda run: run.flush(),
    "dump": lambda run: dftrace_ai.dump("asked"),
    "finalize": lambda run: dftrace_ai.finalize(),
    "initialize": lambda run: dftrace_ai.initialize(),
    "tracing": lambda run: dftrace_ai.tracing().__enter__(),
    "instant": lambda run: ai.instant("now"),
    "update": lambda run: ai.compute.update(step=1),
    "start": lambda run: ai.pipeline.train.start(),
    "stop": lambda run: ai.pipeline.train.stop(),
    "fork": lambda run: os.waitpid(os.fork() or os._exit(0), 0),
    "finalize and begin anew": lambda run: (dftrace_ai.finalize(), dftrace_ai.initialize()),
}

class Raised(BaseException):
    pass

def interrupted(outer, inner, raises):
    '''`inner` is called by a handler while `outer` waits for a write that hangs.'''
    run = dftrace_ai.initialize(flush_interval_ms=60_000, finalize_timeout_s=60)
    spans(10)
    called = threading.Event()

    def handler(*_):
        called.set()
        CALLS[inner](run)
        if raises:
            raise Raised

    def send():
        until(lambda: shim.hanging)
        os.kill(os.getpid(), signal.SIGUSR1)
        # A run's end is waited for without a look at signals.
        if outer != "finalize":
            called.wait(30)
        shim.writes_hang = 0

    signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=send)
    shim.writes_hang = 1
    sender.start()
    raised = False
    try:
        CALLS[outer](run)
        until(called.is_set)  # at the end of a run the handler comes after it
    except Raised:
        raised = True
    sender.join()
    assert raised == raises, (outer, inner)
    while current_run() is not None:  # `tracing` in the handler holds it, too
        dftrace_ai.finalize()
    say(case=[outer, inner, raises], path=run.path, error=run.stats().get("error"))
"""


@pytest.mark.parametrize("outer", ["flush", "dump", "finalize"])
def test_a_handler_calls_anything_while_writing_takes_long(
    pressed: Pressed, outer: str, fault_row: FaultRow
) -> None:
    """Nothing waits for itself, and every span that was recorded is in a complete trace."""
    done = pressed(
        CALLS
        + f"""
for inner in CALLS:
    for raises in (False, True):
        interrupted({outer!r}, inner, raises)
"""
    )
    assert len(done.said) == 22
    assert [said for said in done.said if said["error"]] == []
    traces = {str(t.path): t for t in done.traces(perfetto=False)}
    for said in done.said:
        assert traces[said["path"]].names["forward"] == 10, said
    with fault_row(f"signal handlers call anything while {outer} waits for the disk") as row:
        row.add(judge_counts(list(traces.values()), {"forward": 220}))


def test_a_handler_ends_a_run_whose_file_system_answers_no_more(
    pressed: Pressed, spools: Path, fault_row: FaultRow
) -> None:
    """After its time it gives up; the flush in which it came does, too, and says so."""
    done = pressed(
        CALLS
        + """
run = dftrace_ai.initialize(flush_interval_ms=60_000, finalize_timeout_s=0.05)
spans(10)
signal.signal(signal.SIGUSR1, lambda *_: dftrace_ai.finalize())
shim.writes_hang = 1

def send():
    until(lambda: shim.hanging)
    os.kill(os.getpid(), signal.SIGUSR1)

threading.Thread(target=send).start()
error = refused(run)
say(error=error, abandoned=run.stats()["abandoned"], lost=run.stats()["lost_lines"])
os._exit(0)
""",
        env={"DFTRACE_SPOOL_DIR": str(spools)},
    )
    assert done.said == [{"error": errno.ETIMEDOUT, "abandoned": True, "lost": 10}]
    found = adopt_dead(done.folder)
    assert (len(found.finished), found.failed) == (1, [])
    with fault_row("finalize in a signal handler during flush, and the disk never answers") as row:
        row.add(judge_counts(done.traces(perfetto=False), {"forward": 10}))
