"""Runs the soak, each part in a process of its own; `make soak`.

Ends with status 1 when something grew or was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.machine import describe

PARTS = {
    "flight": ("events in flight-recorder mode", 10**9),
    "written": ("events written", 10**8),
    "cycles": ("initialize, event, finalize", 10**5),
    "round_trip": ("random blocks of gzip, read by others", 10**6),
    "day_parts": ("samples of each of ten threads, within a bound on bytes", 86_400 * 20),
    "day_all": ("samples of each of ten threads, in one file", 86_400 * 20),
}
PROGRAMS = {"round_trip": ["round_trip"], "day_parts": ["day", "parts"], "day_all": ["day", "all"]}
# So many seconds pass in one of a day.
FAST_CLOCK = 200


def environment(part: str, folder: Path) -> dict[str, str]:
    """Return that of a part: for a day the clock goes faster."""
    if not part.startswith("day"):
        return {**os.environ}
    library = folder / "fast_clock.so"
    source = Path(__file__).with_name("fast_clock.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "FAST_CLOCK": str(FAST_CLOCK)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the full numbers")
    parser.add_argument("--part", choices=PARTS, action="append")
    arguments = parser.parse_args()
    print(json.dumps(describe()))
    faults = 0
    for part in arguments.part or PARTS:
        what, full = PARTS[part]
        number = max(1000, int(full * arguments.share))
        program, *given = PROGRAMS.get(part, ["runs", part])
        begun = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix="dftrace-soak-") as folder,
            tempfile.TemporaryDirectory(prefix="dftrace-soak-") as beside,
        ):
            done = subprocess.run(
                [sys.executable, "-m", f"soak.{program}", *given, str(number), folder],
                env=environment(part, Path(beside)),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                cwd=Path(__file__).parent.parent,
            )
        found = json.loads(done.stdout)
        seconds = time.monotonic() - begun
        print(f"{number:,} {what}: {seconds:.0f} s")
        for name, values in found["series"].items():
            print(f"  {name}: {', '.join(f'{value:,}' for value in values)}")
        for fault in found["faults"]:
            print(f"  FAULT: {fault}")
        faults += len(found["faults"])
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
