"""What the statistics of a tensor and its emulation in 8 bits cost, on one thread."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

OURS = "dftrace_ai, six statistics"
ZEROS = "dftrace_ai, eight statistics and counts"
LOST = "dftrace_ai, what an 8-bit format loses, too"
BINS = "dftrace_ai, a histogram, too"
PEER = "nvdlfw-inspect, six statistics"
LABELS = {
    "six": OURS,
    "eight": ZEROS,
    "lost": LOST,
    "bins": BINS,
    "nvdlfw-inspect": PEER,
    "operations": "six operations of torch",
    "sum": "torch.sum",
    "ours": "dftrace_ai",
    "chain": "torch's casts",
    "clone": "torch.clone",
}


def _bench(
    answer: dict[str, Any],
    id: str,
    title: str,
    unit: str,
    contestants: list[str],
    targets: list[Target],
) -> Bench:
    factor = {"ms": 1e3, "us": 1e6}[unit]
    bench = Bench(id, title, unit, targets=targets, reference=LABELS[contestants[0]])
    for name in contestants:
        samples = [second * factor for second in answer.get(id, {}).get(name, [])]
        missing = answer.get("missing", "no interpreter with the peers")
        bench.series.append(Series(LABELS[name], samples=samples, missing=missing))
    return bench


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Read large and small tensors, and quantise; everyone in one process, in turn."""
    packages = homes.peer_packages()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        arguments = [str(rounds), scratch, *([packages] if packages else [])]
        answer = run_once(
            homes.main, ["-m", "bench.tensors.statistics_probe", *arguments], Path(scratch)
        )
    everyone = ["six", "eight", "lost", "bins", "nvdlfw-inspect", "operations", "sum"]
    benches = []
    for dtype, than_peer, than_sum in (("fp32", 1 / 14, 1.3), ("bf16", 1 / 50, 2.5)):
        targets = [
            Target(OURS, than_peer, PEER),
            Target(OURS, than_sum, LABELS["sum"]),
            Target(LOST, 1.8, OURS),
            Target(BINS, 1.5, OURS),
        ]
        title = f"statistics of 64 Mi numbers, {dtype}, one thread"
        benches.append(_bench(answer, f"tensor_{dtype}", title, "ms", everyone, targets))
    small = ["six", "eight", "nvdlfw-inspect", "operations"]
    title = "statistics of 1 Ki numbers, fp32"
    targets = [Target(OURS, 1 / 15, PEER)]
    benches.append(_bench(answer, "tensor_small", title, "us", small, targets))
    for dtype in ("fp32", "bf16"):
        targets = [Target(LABELS["ours"], 1 / 15, LABELS["chain"])]
        title = f"16 Mi numbers to E4M3 and back, {dtype}, one thread"
        three = ["ours", "chain", "clone"]
        benches.append(_bench(answer, f"quantise_{dtype}", title, "ms", three, targets))
    return benches
