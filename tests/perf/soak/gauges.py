"""What a process uses, at several times of a long run."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

LOOKS = 10


class Gauges:
    """Looks at this process now and then, and says afterwards what grew."""

    def __init__(self, *folders: Path) -> None:
        self.series: dict[str, list[int]] = {}
        self._process = psutil.Process()
        self._folders = folders

    def look(self, **others: int) -> None:
        """Take a reading; the first ones are warm-up."""
        now = {
            "heap KiB": _heap_kib(),
            "resident KiB": self._process.memory_info().rss // 1024,
            "open files": self._process.num_fds(),
            "threads": self._process.num_threads(),
            "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
            "spools": sum(
                name.endswith(".spool") for folder in self._folders for name in os.listdir(folder)
            ),
            **others,
        }
        for name, value in now.items():
            self.series.setdefault(name, []).append(value)

    def growth(self, **allowed: int) -> list[str]:
        """Faults: what is more in the last look than in the third by more than allowed."""
        faults: list[str] = []
        for name, values in self.series.items():
            slack = allowed.get(name.split()[0], 0)
            if values[-1] > values[2] + slack:
                faults.append(f"{name} grew from {values[2]:,} to {values[-1]:,}")
        return faults


def _heap_kib() -> int:
    """Memory that is no file's: a spool's pages are, and others may map them as well."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, value, *_ = line.split()
        if name == "Anonymous:":
            return int(value)
    raise RuntimeError("the kernel does not tell the anonymous memory of a process")
