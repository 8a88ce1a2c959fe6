"""Measures recovery: `recovery_probe EVENTS ROUNDS DIR`; prints events per second."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from dftrace_ai.spools import recovery

from .traces import footer

COMPRESSIONS = ("none", "gzip", "zstd")
# Nothing is written before the kill: a flight recorder keeps everything in the spool.
VICTIM = """
import os, signal, sys
import dftrace_ai
from dftrace_ai import ai
events, folder, compression = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dftrace_ai.initialize(log_file=folder + "/dead", spool_dir=folder, spool_bytes=2 << 30,
                      flight_recorder=True, compression=compression)
node = ai.compute.forward
for step in range(events // 100):
    ai.update(epoch=1, step=step)
    for _ in range(50):
        with node, node:
            pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def recover_once(events: int, compression: str, folder: Path) -> dict[str, float]:
    """Kill a process that holds so many events, and time the completion of its trace."""
    folder.mkdir()
    died = subprocess.run(
        [sys.executable, "-c", VICTIM, str(events), str(folder), compression], check=False
    )
    if died.returncode != -signal.SIGKILL:
        raise SystemExit(f"the process to be killed ended with {died.returncode}")
    wall, cpu = time.perf_counter(), time.process_time()
    found = recovery.adopt_dead(folder)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    (trace,) = found.finished
    counts = footer(Path(trace)) if compression != "zstd" else {"events": events}
    if counts["events"] != events or found.damaged or found.failed:
        raise SystemExit(f"{events} events were made, {found} and {counts} were found")
    told = {"wall": events / wall, "cpu": events / cpu, "bytes": Path(trace).stat().st_size}
    Path(trace).unlink()
    folder.rmdir()
    return told


def main() -> None:
    """Take the compressions in turn, round by round."""
    events, rounds, workdir = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    rates: dict[str, list[float]] = {}
    for number in range(rounds):
        for compression in COMPRESSIONS:
            told = recover_once(events, compression, workdir / f"{compression}-{number}")
            for what in ("wall", "cpu"):
                rates.setdefault(f"{what} {compression}", []).append(told[what])
    print(json.dumps({"rates": rates}))


if __name__ == "__main__":
    main()
