"""How fast recovery completes the trace of a process that was killed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

LABELS = {
    "wall none": "plain lines, by the wall clock",
    "wall gzip": "gzip, by the wall clock",
    "wall zstd": "zstd, by the wall clock",
    "cpu none": "plain lines, per second of CPU time",
    "cpu gzip": "gzip, per second of CPU time",
    "cpu zstd": "zstd, per second of CPU time",
}


def measure(homes: Homes, events: int, rounds: int) -> list[Bench]:
    """Return the rates at which killed processes' events are recovered."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as scratch:
        answer = run_once(
            homes.main,
            ["-m", "bench.files.recovery_probe", str(events), str(rounds), scratch],
            Path(scratch),
        )
    rates = answer.get("rates", {})
    bench = Bench(
        "recovery",
        f"recovery of {events:,} events of a killed process, events per second",
        "events/s",
        targets=[Target(LABELS["wall gzip"], 2e6, at_least=True)],
        reference=LABELS["wall none"],
    )
    for key, label in LABELS.items():
        missing = answer.get("missing", "not measured")
        bench.series.append(Series(label, samples=rates.get(key, []), missing=missing))
    bench.notes.append("spool and trace in memory; nothing had been written before the kill")
    return [bench]
