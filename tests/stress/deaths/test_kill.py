"""kill -9 at random moments, in all 200 times, after a hang, and in the last moments of a run."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import RunScript, read_all, trace_files
from safety.commands import dftrace, invoke
from sampling import times

from dftrace_ai.analysis.trace_facts import facts_of
from dftrace_ai.spools.recovery import adopt_dead
from stress.account import processes_with_spans
from stress.conftest import SEED, FaultRow, NewPlace
from stress.judge import judge
from stress.nursery import Nursery, wait_until
from stress.recover import recover

if TYPE_CHECKING:
    from stress.pressure.program import Pressed
    from stress.pressure.shim import Shim

LONGEST_S = (0.001, 0.003, 0.008, 0.02)


def some_settings(rng: random.Random, threads: int = 1) -> dict[str, object]:
    """Settings under which the writer is often in the middle of something, or hardly ever.

    With little room threads wait for it, and units are used again; of many, it has not enough.
    """
    small = {"spool_bytes": 1 << 20, "overflow": "wait"}
    room = rng.choice([{}, {}, small if threads <= 3 else {}])
    return {
        **room,
        "compression": rng.choice(["gzip", "gzip", "none", "zstd"]),
        "flush_interval_ms": rng.choice([1, 10, 1000]),
        "write_buffer_bytes": rng.choice([4096, 1 << 20]),
    }


@pytest.mark.sampled
@pytest.mark.parametrize("threads", range(1, 9))
def test_threads(threads: int, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow) -> None:
    rng = random.Random(f"{SEED} threads {threads}")
    with fault_row(f"kill -9, {threads} thread{'s' * (threads > 1)}") as row:
        for number in range(times(18, 0.2)):
            place = new_place()
            settings = some_settings(rng, threads)
            victim = nursery.start(
                "threads.until_killed", place, threads=threads, settings=settings
            )
            wait_until(lambda: processes_with_spans(place))
            time.sleep(rng.random() * rng.choice(LONGEST_S))
            victim.kill()
            assert victim.ended() == -9, victim.said
            recover(place)
            row.add(judge(place, perfetto=number == 0 and settings["compression"] != "zstd"))


@pytest.mark.sampled
def test_while_the_run_begins(nursery: Nursery, new_place: NewPlace, fault_row: FaultRow) -> None:
    rng = random.Random(f"{SEED} begins")
    with fault_row("kill -9 while the run begins, 2 threads") as row:
        usual_s = float("inf")
        for number in range(3 + times(26, 0.3)):
            place = new_place()
            began = time.perf_counter()
            victim = nursery.start("threads.until_killed", place, threads=2, settings={})
            if number < 3:
                wait_until(lambda: processes_with_spans(place))
                usual_s = min(usual_s, time.perf_counter() - began)
            else:
                time.sleep(rng.random() * 1.5 * usual_s)
            victim.kill()
            assert victim.ended() == -9, victim.said
            recover(place)
            row.add(judge(place))


@pytest.fixture(scope="module")
def nursery_with_torch() -> Iterator[Nursery]:
    """A nursery whose victims have torch at once."""
    pytest.importorskip("torch")
    process = Nursery()
    process.load("torch.utils.data")
    yield process
    process.close()


@pytest.mark.sampled
@pytest.mark.parametrize("persistent", [False, True])
def test_data_loaders(
    persistent: bool, nursery_with_torch: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    rng = random.Random(f"{SEED} loaders {persistent}")
    kind = "persistent" if persistent else "not persistent"
    rows = {who: f"kill -9 of {who}, DataLoader, {kind}" for who in ("main", "a worker", "all")}
    for who, name in rows.items():
        with fault_row(name) as row:
            for number in range(times(5, 0.4)):
                place = new_place()
                settings = some_settings(rng)
                victim = nursery_with_torch.start(
                    "loaders.train", place, persistent=persistent, settings=settings
                )
                wait_until(lambda: processes_with_spans(place) - {victim.pid})
                time.sleep(rng.random() * 0.05)
                if who == "a worker":
                    worker = rng.choice(sorted(processes_with_spans(place) - {victim.pid}))
                    with contextlib.suppress(ProcessLookupError):  # its epoch may just be over
                        os.kill(worker, signal.SIGKILL)
                    (place.folder / "stop").touch()
                    assert victim.ended() == 0, victim.said
                else:
                    if who == "main":
                        victim.kill()
                        wait_until(lambda: victim.has_state("Z"))
                        recover(place)  # the workers still live
                    assert victim.kill_all() == -9, victim.said
                recover(place)
                row.add(judge(place, perfetto=number == 0 and settings["compression"] != "zstd"))


LONG_NS = 300_000_000
TICK_NS = 10_000_000  # in which the times of files go on

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
        while lived_ns < LONG_NS + TICK_NS:
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


# Nobody who looks for spools knows the directory in which these lie, but for their markers.
RECORDING = """
shim = Shim()
os.mkdir("unknown")
run = dftrace_ai.initialize(spool_dir="unknown")
spans(1000)
run.flush()
{end}
"""


def is_left(traces: Path) -> tuple[int, int]:
    """How many markers and spools."""
    spools = list((traces.parent).rglob("unknown/*"))
    return len(list(traces.glob("*.spool-at"))), len(spools)


@pytest.mark.parametrize(("removal", "left"), [(1, (1, 1)), (2, (1, 0))])
def test_nothing_stays_and_nothing_is_told_as_lost(
    pressed: Pressed, traces: Path, removal: int, left: tuple[int, int]
) -> None:
    """Killed before the spool is removed, or before the marker is."""
    end = f"shim.unlink_kills = {removal}\ndftrace_ai.finalize()"
    pressed(RECORDING.format(end=end), status=-9)
    assert is_left(traces) == left
    looked = invoke("stuck", traces)
    assert ("is gone" in looked.out + looked.err, is_left(traces)) == (False, left)
    found = adopt_dead(traces)
    assert (found.failed, found.alive, found.damaged) == ([], [], [])
    assert len(found.ended_in_order) == left[1]
    assert is_left(traces) == (0, 0)
    (trace,) = read_all(trace_files(traces))
    assert trace.names == {"forward": 1000}


@pytest.mark.parametrize(("removal", "left"), [(1, (1, 1)), (2, (1, 0))])
def test_nor_is_it_by_who_completes_the_trace(
    pressed: Pressed,
    shim: Shim,
    pressed_environment: dict[str, str],
    traces: Path,
    removal: int,
    left: tuple[int, int],
) -> None:
    pressed(RECORDING.format(end="os.kill(os.getpid(), signal.SIGKILL)"), status=-9)
    shim.unlink_kills = removal
    assert dftrace("recover", traces, env=pressed_environment).status == -9
    assert is_left(traces) == left
    done = dftrace("recover", traces)
    assert (done.status, done.err) == (0, "")
    assert is_left(traces) == (0, 0)
    (trace,) = read_all(trace_files(traces))
    assert trace.names == {"forward": 1000}
