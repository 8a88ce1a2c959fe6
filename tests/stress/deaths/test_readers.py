"""Readers that look while a process runs, and several that complete the trace of one that died."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from conftest import trace_files
from perfetto.trace_file import read_unfinished
from sampling import times

from stress.account import Place, processes_with_spans
from stress.conftest import SEED, FaultRow, NewPlace
from stress.judge import judge
from stress.nursery import Nursery, Victim, wait_until
from stress.recover import recover, recover_by_command
from stress.table import Row


def look(place: Place, row: Row, *, at_least: int) -> int:
    """Reads what there is of a trace; gives the number of its spans, none of them there twice."""
    count = 0
    for path in trace_files(place.out):
        trace = read_unfinished(path, in_a_write=True)
        keys = [(event.args["diary"], event.args["n"]) for event in trace.of("X", "B")]
        count += len(keys)
        if len(set(keys)) < len(keys):
            row.wrong.append(f"{path.name}: spans are there twice")
        if trace.of("B") or trace.meta("end"):
            row.wrong.append(f"{path.name}: finished while its process lives")
    if count < at_least:
        row.wrong.append(f"{count} spans where there were {at_least}")
    return count


def dead_with_spans(nursery: Nursery, place: Place, **settings: object) -> Victim:
    """A victim that was killed when it had made some spans."""
    victim = nursery.start("threads.until_killed", place, threads=3, settings=settings)
    wait_until(lambda: processes_with_spans(place))
    time.sleep(0.01)
    victim.kill()
    assert victim.ended() == -signal.SIGKILL, victim.said
    return victim


@pytest.mark.parametrize(
    ("fault", "victim_name", "options"),
    [
        (
            "readers while 3 threads record",
            "threads.until_killed",
            {"threads": 3, "settings": {"flush_interval_ms": 2}},
        ),
        ("readers while the first thread is gone, and 3 record", "threads.without_the_first", {}),
        (
            "readers while the process is stopped",
            "threads.until_killed",
            {"threads": 3, "settings": {"flush_interval_ms": 2}},
        ),
    ],
)
def test_readers_of_one_that_lives(
    fault: str,
    victim_name: str,
    options: dict[str, object],
    nursery: Nursery,
    new_place: NewPlace,
    fault_row: FaultRow,
) -> None:
    with fault_row(fault) as row:
        place = new_place()
        victim = nursery.start(victim_name, place, **options)
        wait_until(lambda: trace_files(place.out))
        seen = 0
        for turn in range(6):
            if "stopped" in fault:
                victim.kill(signal.SIGCONT)
                time.sleep(0.005)
                victim.kill(signal.SIGSTOP)
                wait_until(lambda: victim.has_state("T"))
            recovery = recover(place)
            assert len(recovery.alive) == 1, recovery
            assert not recovery.finished
            seen = look(place, row, at_least=seen)
            if turn == 4:
                assert "completed" not in recover_by_command(place)
        victim.kill()
        assert victim.ended() == -signal.SIGKILL
        recover(place)
        row.add(judge(place, perfetto=True))


@pytest.mark.sampled
def test_readers_of_one_that_ends(
    nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    """Whoever looks in the moment of an end in order finds nothing wrong."""
    with fault_row("readers while the process ends in order") as row:
        for _ in range(times(10, 0.3)):
            place = new_place()
            victim = nursery.start("endings.short", place)
            while not victim.has_state("Z"):
                recover(place)
            assert victim.ended() == 0, victim.said
            row.add(judge(place))


@pytest.mark.sampled
def test_several_recover_at_once(
    nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    with fault_row("kill -9, recovered by 4 at once, and once more") as row:
        for _ in range(times(5, 0.4)):
            place = new_place()
            dead_with_spans(nursery, place)
            adopters = [nursery.start("programs.adopt", place) for _ in range(4)]
            (place.folder / "go").touch()
            assert [adopter.ended() for adopter in adopters] == [0] * 4, adopters[0].said
            assert sorted(adopters[0].said.splitlines()) == ["0 0"] * 3 + ["1 0"]
            before = [path.read_bytes() for path in trace_files(place.out)]
            assert not recover(place).finished
            assert [path.read_bytes() for path in trace_files(place.out)] == before
            row.add(judge(place))


@pytest.mark.parametrize("written", [True, False], ids=["partly written", "not written"])
def test_recovery_that_is_killed_itself(
    written: bool, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    rng = random.Random(f"{SEED} recovery {written}")
    name = "partly written" if written else "not written"
    with fault_row(f"kill -9, {name}, and of each who recovers it") as row:
        for _ in range(3):
            place = new_place()
            dead_with_spans(
                nursery,
                place,
                write_buffer_bytes=4096,
                flush_interval_ms=1 if written else 60_000,
            )
            (place.folder / "go").touch()
            tries = 0
            # By its spool: one that is killed at once on a busy machine has no marker yet.
            while list(place.spools.iterdir()):
                tries += 1
                adopter = nursery.start("programs.adopt", place)
                time.sleep(rng.random() * 0.005 * tries)
                os.kill(adopter.pid, signal.SIGKILL)
                adopter.ended()
            said = (place.folder / "said").read_text(encoding="utf-8").splitlines()
            row.wrong += [f"a recovery says {line}" for line in said if line not in {"0 0", "1 0"}]
            row.add(judge(place))
