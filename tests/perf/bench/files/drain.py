"""How fast the drain turns records into lines, plain and compressed, and how small they get."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

GZIP, LIBDEFLATE = "formatted and gzip", "formatted and gzip of libdeflate, level 5"
LABELS = {
    "core none": "formatted to plain lines",
    "core gzip": GZIP,
    "core libdeflate": LIBDEFLATE,
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
            Target(GZIP, 4.0, LIBDEFLATE, at_least=True),
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
    sizes = Bench(
        "drain_size",
        "compressed size per event of the same lines",
        "bytes",
        targets=[Target(GZIP, 0.95, LIBDEFLATE)],
        reference=GZIP,
    )
    for key, label in LABELS.items():
        if key.startswith("core") and key != "core none":
            found = answer.get("bytes_per_event", {}).get(key, [])
            missing = answer.get("missing", "no native benchmark in this build")
            sizes.series.append(Series(label, samples=found, missing=missing))
    return [bench, sizes, *_index_costs(answer.get("index", {}))]


def _index_costs(answer: dict[str, dict[str, list[float]]]) -> list[Bench]:
    """Return what the index adds to the drain's time and to the file."""
    benches = []
    for member, title, unit, scale, most in (
        ("time", "drain with index lines and without: CPU time an event", "ns", 1e9, 1.05),
        ("bytes", "a file with index lines and without: bytes an event", "B", 1, 1.01),
    ):
        bench = Bench(f"drain_index_{member}", title, unit, reference="gzip, no index")
        bench.targets.append(Target("gzip", most, "gzip, no index"))
        for compression in ("none", "gzip", "zstd"):
            for label in (compression, f"{compression}, no index"):
                samples = [scale * value for value in answer.get(member, {}).get(label, [])]
                missing = "no native benchmark in this build"
                bench.series.append(Series(label, samples=samples, missing=missing))
        benches.append(bench)
    return benches
