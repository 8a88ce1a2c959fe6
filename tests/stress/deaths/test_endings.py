"""Programs that end, each in an interpreter of its own."""

from __future__ import annotations

import signal

import pytest

from stress.conftest import FaultRow, NewPlace
from stress.judge import judge
from stress.nursery import Nursery
from stress.recover import recover, recover_by_command

ENDINGS = {
    "returns": ("the program ends without finalize", 0),
    "finalizes": ("finalize while 4 threads record", 0),
    "exits_at_once": ("os._exit while 4 threads record", 3),
    "sys_exit": ("sys.exit inside of spans", 3),
    "raises": ("unhandled exception", 1),
    "raises_in_a_thread": ("unhandled exception in a thread", 0),
    "aborts": ("os.abort while 4 threads record", -signal.SIGABRT),
    "reads_address_zero": ("segmentation fault while 4 threads record", -signal.SIGSEGV),
    "leaves_daemon_threads": ("interpreter shutdown, 4 daemon threads record", 0),
    "leaves_threads": ("the main thread ends before 4 others", 0),
}


@pytest.mark.parametrize("victim_name", ENDINGS)
def test_ending(
    victim_name: str, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    fault, status = ENDINGS[victim_name]
    with fault_row(fault) as row:
        place = new_place()
        options = {"settings": {}} if victim_name == "sys_exit" else {}
        victim = nursery.start(f"endings.{victim_name}", place, fresh=True, **options)
        assert victim.ended() == status, victim.said
        recover(place)
        row.add(judge(place, perfetto=True))


PROGRAMS = {
    "runs_programs": "subprocesses, started while 3 threads record",
    "becomes_true": "exec of /bin/true while 3 threads record",
    "becomes_a_tracer": "exec of a program that records",
}


@pytest.mark.parametrize("victim_name", PROGRAMS)
def test_programs(
    victim_name: str, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    with fault_row(PROGRAMS[victim_name]) as row:
        place = new_place()
        victim = nursery.start(f"programs.{victim_name}", place, fresh=True)
        assert victim.ended() == 0, victim.said
        recover_by_command(place)
        row.add(judge(place, perfetto=True))
