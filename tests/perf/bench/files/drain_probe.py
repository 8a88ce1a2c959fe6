"""Measures the drain on one core: `drain_probe EVENTS ROUNDS DIR`; prints events per CPU second."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import dftrace_ai
from dftrace_ai import ai

from .drain_module import drain_door
from .traces import footer

# A level of gzip is one of libdeflate's.
ON_ONE_CORE = {
    "none": ("none",),
    "gzip": ("gzip",),
    "libdeflate": ("gzip", 5),
    "zstd": ("zstd",),
}


def through_a_run(events: int, compression: Any, workdir: Path) -> float:
    """Record a burst of spans, and read the drain's CPU time from the footer."""
    node: Any = ai.compute.forward
    with dftrace_ai.tracing(
        log_file=workdir / f"drain-{compression}", compression=compression, spool_bytes=1 << 30
    ) as run:
        for step in range(events // 100):
            ai.update(epoch=1, step=step)
            for _ in range(50):
                with node, node:
                    pass
    path = Path(run.path or "")
    counts = footer(path) if compression != "zstd" else {}
    path.unlink()
    if not counts:
        return 0.0
    return float(counts["events"] / (counts["drain_cpu_us"] / 1e6))


def main() -> None:
    """Take the compressions in turn, round by round."""
    events, rounds, workdir = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    door = drain_door()
    before_kib = getrusage(RUSAGE_SELF).ru_maxrss
    rates: dict[str, list[float]] = {}
    sizes: dict[str, list[float]] = {}
    index: dict[str, dict[str, list[float]]] = {"time": {}, "bytes": {}}
    for _ in range(rounds):
        for compression in ("none", "gzip"):
            rate = through_a_run(events, compression, workdir)
            rates.setdefault(f"run {compression}", []).append(rate)
        if door is None:
            continue
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(everywhere)})
        for name, how in ON_ONE_CORE.items():
            told = door(events, *how)
            rates.setdefault(f"core {name}", []).append(told["events"] / told["seconds_cpu"])
            sizes.setdefault(f"core {name}", []).append(told["bytes_file"] / told["events"])
        for compression in ("none", "gzip", "zstd"):
            # In pairs, of which the second begins where the first has warmed up what both use.
            bare = door(events, compression, 0, False)
            told = door(events, compression)
            for label, one in ((compression, told), (f"{compression}, no index", bare)):
                for member, counted in (("time", "seconds_cpu"), ("bytes", "bytes_file")):
                    index[member].setdefault(label, []).append(one[counted] / events)
        os.sched_setaffinity(0, everywhere)
    grown_kib = getrusage(RUSAGE_SELF).ru_maxrss - before_kib
    found = {
        "rates": rates,
        "bytes_per_event": sizes,
        "index": index,
        "peak_growth_mib": grown_kib / 1024,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
