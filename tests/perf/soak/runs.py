"""Long runs, and what their process uses at several times: `python -m soak.runs PART NUMBER FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from itertools import repeat
from pathlib import Path
from typing import Any

import psutil

import dftrace_ai
from dftrace_ai import ai

LOOKS = 10


class Gauges:
    """Looks at this process now and then, and says afterwards what grew."""

    def __init__(self, folder: Path) -> None:
        self.series: dict[str, list[int]] = {}
        self._process = psutil.Process()
        self._folder = folder

    def look(self, **others: int) -> None:
        """Take a reading; the first ones are warm-up."""
        now = {
            "heap KiB": _heap_kib(),
            "resident KiB": self._process.memory_info().rss // 1024,
            "open files": self._process.num_fds(),
            "threads": self._process.num_threads(),
            "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
            "spools": sum(name.endswith(".spool") for name in os.listdir(self._folder)),
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


def spans(number: int) -> None:
    node = ai.compute.forward
    for _ in repeat(None, number):
        with node:
            pass


def flight(number: int, folder: Path, gauges: Gauges) -> list[str]:
    """Events in flight-recorder mode, from one thread."""
    run = dftrace_ai.initialize(
        log_file=folder / "t", spool_dir=folder, flight_recorder=True, spool_bytes=16 << 20
    )
    for look in range(LOOKS):
        ai.update(look=look)
        spans(number // LOOKS)
        gauges.look(spool_bytes=run.stats()["spool_bytes"])
    made = number // LOOKS * LOOKS
    before = run.stats()
    dftrace_ai.dump("soak")
    written = run.stats()["written_spans"]
    dftrace_ai.finalize()
    faults = gauges.growth(heap=512, resident=2048)
    if before["overwritten"] + written != made or before["dropped"]:
        faults.append(f"made {made:,}, kept {written:,}, told {before}")
    return faults


def written(number: int, folder: Path, gauges: Gauges) -> list[str]:
    """Events written to a trace in parts."""
    parts: dict[str, Any] = {"max_file_bytes": 64 << 20, "max_files": 2}
    run = dftrace_ai.initialize(
        log_file=folder / "t", spool_dir=folder, spool_bytes=16 << 20, overflow="wait", **parts
    )
    per_update = 1000
    steps = number // LOOKS // per_update
    for _ in range(LOOKS):
        for step in range(steps):
            ai.update(step=step)
            spans(per_update)
        gauges.look(spool_bytes=run.stats()["spool_bytes"])
    made = LOOKS * steps * per_update
    dftrace_ai.finalize()
    stats = run.stats()
    faults = gauges.growth(heap=512, resident=2048)
    if stats["events"] != made or stats["dropped"] or stats["lost_lines"]:
        faults.append(f"made {made:,}, told {stats}")
    return faults


def cycles(number: int, folder: Path, gauges: Gauges) -> list[str]:
    """Runs that begin and end."""
    config = dftrace_ai.Config(log_file=folder / "t", spool_dir=folder, spool_bytes=1 << 20)
    faults: list[str] = []
    for _ in range(LOOKS):
        for _ in range(number // LOOKS):
            run = dftrace_ai.initialize(config)
            spans(1)
            dftrace_ai.finalize()
            if run.stats()["events"] != 1:
                faults.append(f"told {run.stats()}")
            Path(run.path or "").unlink()
        gauges.look()
    # The C library keeps every value that DFTRACE_RUN ever had.
    environment = number * 160 // 1024
    return faults + gauges.growth(heap=512 + environment, resident=2048 + environment)


def main() -> None:
    part, number, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    gauges = Gauges(folder)
    faults = {"flight": flight, "written": written, "cycles": cycles}[part](number, folder, gauges)
    print(json.dumps({"series": gauges.series, "faults": faults[:10]}))


if __name__ == "__main__":
    main()
