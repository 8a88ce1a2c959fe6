"""A file system that is slow or answers no more: the traced threads do not wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import clean_environment, read_all, trace_files

import dftrace_ai.spools.recovery
from stress.pressure.shim import Shim

if TYPE_CHECKING:
    from stress.pressure.program import Pressed

pytest_plugins = ["stress.pressure.program"]

FINALIZE_LIMIT_S = 30
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


def test_what_does_not_fit_is_dropped_and_counted(pressed: Pressed) -> None:
    done = pressed(
        HANG
        + """
with dftrace_ai.tracing(flush_interval_ms=5, spool_bytes=1 << 20) as run:
    hang(run)
    for _ in ai.dataloader.fetch.iter(range(20_000)):
        pass
    dropped = run.stats()["dropped"]
    hanging = shim.hanging
    shim.writes_hang = 0
    run.flush()
    spans(100, ai.compute.backward)
say(hanging=hanging, dropped=dropped)
"""
    )
    (said,) = done.said
    trace = done.trace(perfetto=False)
    assert said["hanging"] == 1
    assert trace.footer["dropped"] == said["dropped"] > 0
    assert trace.footer["events"] == 40_200 - said["dropped"]
    assert trace.names["backward"] == 100
    counts = [e.args["count"] for e in trace.named("fetch.block")]
    assert counts == list(range(1, len(counts) + 1))


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


def test_a_slow_disk_slows_only_the_writer(pressed: Pressed) -> None:
    done = pressed(
        """
        Shim().write_delay_us = 5000
        with dftrace_ai.tracing(flush_interval_ms=1, write_buffer_bytes=16 * 1024) as run:
            for step in range(20):
                ai.update(step=step)
                spans(1000)
        say(dropped=run.stats()["dropped"])
        """
    )
    assert done.said == [{"dropped": 0}]
    trace = done.trace(perfetto=False)
    assert [e.user["step"] for e in trace.named("forward")] == [n // 1000 for n in range(20_000)]


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
        recorded = bool(select.select([read], [], [], 10)[0])
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
    pressed_environment: dict[str, str],
    shim: Shim,
    traces: Path,
    spools: Path,
    tmp_path: Path,
    begins: str,
) -> None:
    """It gives up, says so and leaves the spool to a reader, who finds everything."""
    from stress.pressure.program import PREAMBLE

    script = tmp_path / "script.py"
    begin = {
        "before": "hang(run)",
        "with-finalize": "spans(50); run.flush(); spans(50); shim.writes_hang = 1",
        "server-with-finalize": "spans(50); run.flush(); spans(50); shim.server_away = 1",
    }[begins]
    interval_ms = 5 if begins == "before" else 60_000
    source = f"""
run = dftrace_ai.initialize(
    flush_interval_ms={interval_ms}, finalize_timeout_s=2
)
{begin}
spans(500, ai.compute.backward)
dftrace_ai.finalize()
say(stats=run.stats())
"""
    script.write_text(PREAMBLE + HANG + source)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env=clean_environment() | pressed_environment | {"DFTRACE_SPOOL_DIR": str(spools)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=FINALIZE_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        pytest.fail("finalize waits for a file system that does not answer")
    finally:
        shim.writes_hang = shim.server_away = 0
    assert process.returncode == 0, stderr
    (spool,) = spools.iterdir()
    assert str(spool) in stderr
    outcome = dftrace_ai.spools.recovery.adopt_dead(traces)
    assert outcome.failed == []
    (trace,) = read_all(trace_files(traces))
    assert trace.names == {"forward": 100, "backward": 500}
    assert trace.footer["dropped"] == 0
