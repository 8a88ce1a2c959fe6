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
# Of version 1 and 2: where they lie, the file of the limit, that of the limit with swap and what it takes, and the
# one that counts kills.
VERSIONS = (
    (
        "memory",
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        LIMIT_BYTES,
        "memory.oom_control",
    ),
    ("", "memory.max", "memory.swap.max", 0, "memory.events"),
)


@dataclass(frozen=True)
class MemoryGroup:
    """A cgroup with a limit and without swap."""

    folder: Path
    counts: str

    @property
    def kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        lines = (self.folder / self.counts).read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextmanager
def memory_group() -> Iterator[MemoryGroup | None]:
    """A new cgroup with that limit; None where this machine lets nobody make one."""
    for mount, limit, swap, swap_bytes, counts in VERSIONS:
        folder = Path("/sys/fs/cgroup", mount, f"stress-{os.getpid()}")
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / limit).exists():
                (folder / limit).write_text(str(LIMIT_BYTES), encoding="ascii")
                with suppress(OSError):  # a kernel that does not count swap
                    (folder / swap).write_text(str(swap_bytes), encoding="ascii")
                yield MemoryGroup(folder, counts)
                return
        finally:
            _remove(folder)
    yield None


def _remove(folder: Path) -> None:
    for _ in range(1000):
        try:
            folder.rmdir()
        except OSError:  # the last process has not quite left
            time.sleep(0.005)
        else:
            return


def test_out_of_memory(nursery: Nursery, new_place: NewPlace, fault_row: FaultRow) -> None:
    """Where no cgroup can be made, the row says that it is not the kernel who kills."""
    with memory_group() as group:
        by = "OOM kill (memory limit)" if group else "SIGKILL, since no OOM kill can be had here"
        with fault_row(f"{by}, 4 threads") as row:
            place = new_place()
            members = str(group.folder / "cgroup.procs") if group else None
            victim = nursery.start("threads.until_memory_ends", place, group=members)
            assert victim.ended() == -signal.SIGKILL, victim.said
            assert group is None or group.kills == 1
            assert "completed" in recover_by_command(place)
            row.add(judge(place, perfetto=True))
