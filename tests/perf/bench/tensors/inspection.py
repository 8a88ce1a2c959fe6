"""What tensor inspection costs where nothing is due, and what merging over ranks does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

PEER = "nvdlfw-inspect"
NOT_DUE = "dftrace_ai, not due"
NOT_CONFIGURED = "dftrace_ai, not configured"
IDLE = "dftrace_ai, attached, nothing due"
PLAIN = "torch.nn.Linear"
MERGED = "dftrace_ai, records"
MICRO = 1e6


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Time calls that log nothing, a layer that is idle, and an exchange of two ranks."""
    packages = homes.peer_packages()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        arguments = [str(rounds), scratch, *([packages] if packages else [])]
        answer = run_once(
            homes.main, ["-m", "bench.tensors.inspection_probe", *arguments], Path(scratch)
        )
    plans = [
        (
            "inspect_call",
            "log_tensor_stats where nothing is logged, a call",
            [NOT_DUE, NOT_CONFIGURED, PEER],
            [
                Target(NOT_DUE, 1 / 15, PEER),
                Target(NOT_CONFIGURED, 1 / 15, PEER),
                Target(NOT_DUE, 0.5),
                Target(NOT_CONFIGURED, 0.5),
            ],
        ),
        (
            "inspect_idle",
            "a Linear of 256 by 256 and a batch of 64, forward and backward",
            [IDLE, PLAIN, "torch.nn.Linear, again"],
            [Target(IDLE, 1.0, PLAIN, noise_of="torch.nn.Linear, again")],
        ),
        (
            "inspect_merge",
            "the statistics of 4 Mi numbers on each of two gloo ranks, merged",
            [MERGED, PEER],
            [Target(MERGED, 1 / 50, PEER)],
        ),
    ]
    benches = []
    for id, title, contestants, targets in plans:
        bench = Bench(id, title, "us", targets=targets, reference=contestants[0])
        for name in contestants:
            samples = [second * MICRO for second in answer.get(id, {}).get(name, [])]
            missing = answer.get("missing", "no interpreter with the peers")
            bench.series.append(Series(name, samples=samples, missing=missing))
        benches.append(bench)
    return benches
