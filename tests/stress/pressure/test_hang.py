"""A file system that is slow or answers no more: traced threads do not wait for it, nor do handlers."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import read_all, trace_files

from dftrace_ai.spools.recovery import adopt_dead
from stress.judge import judge_counts
from stress.pressure.shim import Shim

if TYPE_CHECKING:
    from stress.conftest import FaultRow
    from stress.pressure.program import Pressed

# Writing hangs from here on, and the writer has gone to sleep in it.
HANG = """
shim = Shim()
def hang(run):
    spans(50)
    run.flush()
    shim.writes_hang = 1
    spans(50)
    until(lambda: shim.hanging == 1)
"""


def test_threads_go_on_while_writing_hangs(pressed: Pressed) -> None:
    """Spans, new threads, ended threads and arguments: nothing of it needs the writer."""
    done = pressed(
        HANG
        + """
with dftrace_ai.tracing(flush_interval_ms=5) as run:
    hang(run)
    threads = [threading.Thread(target=spans, args=(50,)) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for step in range(1000):
        ai.compute.backward.update(step=step)
        spans(1, ai.compute.backward)
    say(hanging=shim.hanging, dropped=run.stats()["dropped"])
    shim.writes_hang = 0
"""
    )
    assert done.said == [{"hanging": 1, "dropped": 0}]
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 5_100, "backward": 1000}
    assert [e.user for e in trace.named("backward")] == [{"step": n} for n in range(1000)]


def test_waiting_ends_with_the_hang(pressed: Pressed, shim: Shim) -> None:
    """With overflow="wait" all events are kept. Another process lets the writer go on."""
    done = pressed(
        HANG
        + """
with dftrace_ai.tracing(flush_interval_ms=5, spool_bytes=1 << 20, overflow="wait") as run:
    hang(run)
    made, proceed = os.pipe()
    waiting = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/stat")
    if os.fork() == 0:
        for _ in range(13):  # for so many there is room
            os.read(made, 1)
        asleep = 0
        while asleep < 5:
            asleep = asleep + 1 if waiting.read_text().rpartition(")")[2].split()[0] == "S" else 0
            time.sleep(0.002)
        shim.writes_hang = 0
        os._exit(0)
    for wave in range(30):
        spans(1000)
        os.write(proceed, b"x")
"""
    )
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 30_100}
    assert trace.footer["dropped"] == 0
    assert trace.footer["waits"] > 0


@pytest.mark.parametrize("what", ["writes_hang", "server_away"])
def test_a_fork_while_the_file_system_hangs(pressed: Pressed, spools: Path, what: str) -> None:
    """The child records, whether only writing hangs or whatever touches the traces' directory."""
    done = pressed(
        f"""
        shim = Shim()
        run = dftrace_ai.initialize(flush_interval_ms=5)
        spans(50)
        run.flush()
        shim.{what} = 1
        spans(50)
        until(lambda: shim.hanging)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            spans(100, ai.data.item)
            os.write(write, b"x")
            signal.pause()
        os.close(write)
        import select
        recorded = bool(select.select([read], [], [], 60)[0])
        shim.{what} = 0
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        dftrace_ai.finalize()
        say(recorded=recorded)
        """,
        env={"DFTRACE_SPOOL_DIR": str(spools)},
    )
    assert done.said == [{"recorded": True}]
    own, children = done.split(perfetto=False)
    assert own.names == {"forward": 100}
    assert [t.names for t in children] == [{"item": 100}]


@pytest.mark.parametrize("begins", ["before", "with-finalize", "server-with-finalize"])
def test_finalize_while_writing_hangs(
    pressed: Pressed, shim: Shim, traces: Path, spools: Path, begins: str
) -> None:
    """It gives up, says so and leaves the spool to a reader, who finds everything."""
    begin = {
        "before": "hang(run)",
        "with-finalize": "spans(50); run.flush(); spans(50); shim.writes_hang = 1",
        "server-with-finalize": "spans(50); run.flush(); spans(50); shim.server_away = 1",
    }[begins]
    interval_ms = 5 if begins == "before" else 60_000
    done = pressed(
        HANG
        + f"""
run = dftrace_ai.initialize(flush_interval_ms={interval_ms}, finalize_timeout_s=0.3)
{begin}
spans(500, ai.compute.backward)
dftrace_ai.finalize()
""",
        env={"DFTRACE_SPOOL_DIR": str(spools)},
    )
    shim.writes_hang = shim.server_away = 0
    (spool,) = spools.iterdir()
    assert str(spool) in done.stderr
    assert adopt_dead(traces).failed == []
    (trace,) = read_all(trace_files(traces))
    assert trace.names == {"forward": 100, "backward": 500}
    assert trace.footer["dropped"] == 0


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
