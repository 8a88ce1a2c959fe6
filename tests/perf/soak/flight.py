"""Events in flight-recorder mode, from one thread: `python -m soak.flight NUMBER FOLDER`."""

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
        log_file=folder / "t", spool_dir=folder, flight_recorder=True, spool_bytes=16 << 20
    )
    node = ai.compute.forward
    made = 0
    for look in range(LOOKS):
        ai.update(look=look)
        for _ in repeat(None, number // LOOKS):
            with node:
                pass
        made += number // LOOKS
        gauges.look(spool_bytes=run.stats()["spool_bytes"])
    before = run.stats()
    dftrace_ai.dump("soak")
    written = run.stats()["written_spans"]
    dftrace_ai.finalize()
    faults = gauges.growth(heap=512, resident=2048)
    if before["overwritten"] + written != made or before["dropped"]:
        faults.append(f"made {made:,}, kept {written:,}, told {before}")
    print(json.dumps({"series": gauges.series, "faults": faults}))


main()
