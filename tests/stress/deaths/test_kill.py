"""kill -9 at random moments, in all 200 times."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator

import pytest
from sampling import times

from stress.account import processes_with_spans
from stress.conftest import SEED, FaultRow, NewPlace
from stress.judge import judge
from stress.nursery import Nursery, wait_until
from stress.recover import recover

LONGEST_S = (0.001, 0.003, 0.008, 0.02)


def some_settings(rng: random.Random) -> dict[str, object]:
    """Settings under which the writer is often in the middle of something, or hardly ever."""
    return {
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
            settings = some_settings(rng)
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


def test_by_an_argument(nursery: Nursery, new_place: NewPlace, fault_row: FaultRow) -> None:
    with fault_row("kill -9 while an argument is turned into text") as row:
        place = new_place()
        victim = nursery.start("threads.killed_by_an_argument", place)
        assert victim.ended() == -9, victim.said
        recover(place)
        row.add(judge(place, perfetto=True))


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "not killed"])
def test_inside_a_long_span(
    killed: bool, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    end = "kill -9" if killed else "end of the program"
    with fault_row(f"{end} inside of a span open for long, arguments change") as row:
        place = new_place()
        victim = nursery.start("threads.inside_a_long_span", place, killed=killed)
        assert victim.ended() == (-9 if killed else 0), victim.said
        recover(place)
        row.add(judge(place, perfetto=True))


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
