"""How fast recovery completes the trace of a process that was killed.

`python -m bench.files.recovery EVENTS ROUNDS DIR` prints events per second.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from bench.processes import Homes, probe
from bench.series import Bench, Target
from dftrace_ai.spools import recovery

from .traces import footer

COMPRESSIONS = {"none": "plain lines", "gzip": "gzip", "zstd": "zstd"}
BY = {"wall": "by the wall clock", "cpu": "per second of CPU time"}
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


def measure(homes: Homes, events: int, rounds: int) -> list[Bench]:
    """Return the rates at which killed processes' events are recovered."""
    answer = probe(homes.main, "files.recovery", events, rounds, within="/dev/shm")
    labels = [f"{what}, {how}" for how in BY.values() for what in COMPRESSIONS.values()]
    bench = Bench(
        "recovery",
        f"recovery of {events:,} events of a killed process, events per second",
        "events/s",
        targets=[Target("gzip, by the wall clock", 2e6, at_least=True)],
        reference=labels[0],
        notes=["spool and trace in memory; nothing had been written before the kill"],
    )
    return [bench.fill(answer.get("rates", {}), labels, answer.get("missing", "not measured"))]


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
    Path(trace).unlink()
    folder.rmdir()
    return {"wall": events / wall, "cpu": events / cpu}


def main() -> None:
    """Take the compressions in turn, round by round."""
    events, rounds, workdir = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    rates: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for compression, what in COMPRESSIONS.items():
            told = recover_once(events, compression, workdir / f"{compression}-{number}")
            for clock, how in BY.items():
                rates[f"{what}, {how}"].append(told[clock])
    print(json.dumps({"rates": rates}))


if __name__ == "__main__":
    main()
