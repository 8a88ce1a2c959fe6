"""The kernel's own kill -9, for want of memory."""

from __future__ import annotations

import signal

from stress.conftest import FaultRow, NewPlace
from stress.deaths.memory_limit import memory_group
from stress.judge import judge
from stress.nursery import Nursery
from stress.recover import recover_by_command

LIMIT_BYTES = 128 << 20


def test_out_of_memory(nursery: Nursery, new_place: NewPlace, fault_row: FaultRow) -> None:
    """Where no cgroup can be made, the row says that it is not the kernel who kills."""
    with memory_group(LIMIT_BYTES) as group:
        by = "OOM kill (memory limit)" if group else "SIGKILL, since no OOM kill can be had here"
        with fault_row(f"{by}, 4 threads") as row:
            place = new_place()
            members = str(group.members) if group else None
            victim = nursery.start("threads.until_memory_ends", place, group=members)
            assert victim.ended() == -signal.SIGKILL, victim.said
            assert group is None or group.kills == 1
            assert "completed" in recover_by_command(place)
            row.add(judge(place, perfetto=True))
