"""How fast the drain turns records into lines, plain and compressed, per second of one core."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

LABELS = {
    "core none": "formatted to plain lines",
    "core gzip": "formatted and gzip",
    "core zstd": "formatted and zstd",
    "run none": "plain, in a real run (footer)",
    "run gzip": "gzip, in a real run (footer)",
}


def measure(homes: Homes, events: int, rounds: int) -> list[Bench]:
    """Return the drain's rate, from the native benchmark and from the footers of real runs."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        answer = run_once(
            homes.main,
            ["-m", "bench.files.drain_probe", str(events), str(rounds), scratch],
            Path(scratch),
        )
    rates = answer.get("rates", {})
    door = "core none" in rates
    plain, packed = ("core none", "core gzip") if door else ("run none", "run gzip")
    bench = Bench(
        "drain",
        "drain, events per second of CPU time on one core",
        "events/s",
        targets=[
            Target(LABELS[plain], 5e6, at_least=True),
            Target(LABELS[packed], 2e6, at_least=True),
        ],
        reference=LABELS[plain],
    )
    for key, label in LABELS.items():
        missing = answer.get("missing", "no native benchmark in this build")
        bench.series.append(Series(label, samples=rates.get(key, []), missing=missing))
    if "peak_growth_mib" in answer:
        bench.notes.append(
            f"peak memory grew by {answer['peak_growth_mib']:.0f} MiB over bursts of {events:,} "
            "events, mapped spool included"
        )
    for compression, size in answer.get("bytes_per_event", {}).items():
        bench.notes.append(f"native benchmark, {compression}: {size:.1f} bytes an event on disk")
    return [bench]
