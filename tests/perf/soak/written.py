"""Events written to a trace in parts: `python -m soak.written NUMBER FOLDER`."""

from __future__ import annotations

import json
import sys
from itertools import repeat
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai
from soak.gauges import LOOKS, Gauges


def main() -> None:
    number, folder = int(sys.argv[1]), Path(sys.argv[2])
    gauges = Gauges(folder)
    run = dftrace_ai.initialize(
        log_file=folder / "t",
        spool_dir=folder,
        spool_bytes=16 << 20,
        overflow="wait",
        max_file_bytes=64 << 20,
        max_files=2,
    )
    node = ai.compute.forward
    per_update = 1000
    made = 0
    for _ in range(LOOKS):
        for step in range(number // LOOKS // per_update):
            ai.update(step=step)
            for _ in repeat(None, per_update):
                with node:
                    pass
            made += per_update
        stats = run.stats()
        gauges.look(spool_bytes=stats["spool_bytes"])
    dftrace_ai.finalize()
    stats = run.stats()
    faults = gauges.growth(heap=512, resident=2048)
    if stats["events"] != made or stats["dropped"] or stats["lost_lines"]:
        faults.append(f"made {made:,}, told {stats}")
    print(json.dumps({"series": gauges.series, "faults": faults}))


main()
