"""A memory cgroup: processes that the kernel kills when together they take too much."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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
