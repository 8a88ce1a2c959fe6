"""The kernel's own kill -9, for want of memory: in a cgroup, where together they take too much."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stress.conftest import FaultRow, NewPlace
from stress.judge import judge
from stress.nursery import Nursery
from stress.recover import recover_by_command

LIMIT_BYTES = 128 << 20
MOUNTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))  # version 1, version 2
LIMIT_FILES = ("memory.limit_in_bytes", "memory.max")
SWAP_FILES = ("memory.memsw.limit_in_bytes", "memory.swap.max")
COUNT_FILES = ("memory.oom_control", "memory.events")


@dataclass(frozen=True)
class MemoryGroup:
    """A cgroup with a limit and without swap."""

    folder: Path

    @property
    def members(self) -> Path:
        """Who writes its process id into this file has joined."""
        return self.folder / "cgroup.procs"

    @property
    def kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        for name in COUNT_FILES:
            with suppress(FileNotFoundError):
                lines = (self.folder / name).read_text(encoding="ascii").splitlines()
                return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        return 0


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup | None]:
    """A new cgroup with that limit; None where this machine lets nobody make one."""
    for mount in MOUNTS:
        group = MemoryGroup(mount / f"stress-{os.getpid()}")
        try:
            group.folder.mkdir()
        except OSError:
            continue
        try:
            if _limit(group, limit_bytes):
                yield group
                return
        finally:
            _remove(group)
    yield None


def _limit(group: MemoryGroup, limit_bytes: int) -> bool:
    limit = [group.folder / name for name in LIMIT_FILES if (group.folder / name).exists()]
    if not limit:
        return False
    limit[0].write_text(str(limit_bytes), encoding="ascii")
    for name, swap in zip(SWAP_FILES, (limit_bytes, 0), strict=True):
        with suppress(OSError):
            if (group.folder / name).exists():
                (group.folder / name).write_text(str(swap), encoding="ascii")
    return True


def _remove(group: MemoryGroup) -> None:
    for _ in range(1000):
        try:
            group.folder.rmdir()
        except OSError:  # the last process has not quite left
            time.sleep(0.005)
        else:
            return


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
