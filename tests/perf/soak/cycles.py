"""Runs that begin and end: `python -m soak.cycles NUMBER FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai
from soak.gauges import LOOKS, Gauges


def main() -> None:
    number, folder = int(sys.argv[1]), Path(sys.argv[2])
    gauges = Gauges(folder)
    config = dftrace_ai.Config(log_file=folder / "t", spool_dir=folder, spool_bytes=1 << 20)
    faults: list[str] = []
    for _ in range(LOOKS):
        for _ in range(number // LOOKS):
            run = dftrace_ai.initialize(config)
            with ai.compute.forward:
                pass
            dftrace_ai.finalize()
            if run.stats()["events"] != 1:
                faults.append(f"told {run.stats()}")
            Path(run.path or "").unlink()
        gauges.look()
    # The C library keeps every value that DFTRACE_RUN ever had.
    environment = number * 160 // 1024
    faults += gauges.growth(heap=512 + environment, resident=2048 + environment)
    print(json.dumps({"series": gauges.series, "faults": faults[:10]}))


main()
