"""What the statistics of a tensor and its emulation in 8 bits cost, on one thread."""

from __future__ import annotations

from bench.processes import Homes, probe
from bench.series import Bench, Target

OURS = "dftrace_ai, six statistics"
ZEROS = "dftrace_ai, eight statistics and counts"
LOST = "dftrace_ai, what an 8-bit format loses, too"
BINS = "dftrace_ai, a histogram, too"
PEER = "nvdlfw-inspect, six statistics"
OPERATIONS, SUM = "six operations of torch", "torch.sum"
QUANTISED, CHAIN, CLONE = "dftrace_ai", "torch's casts", "torch.clone"


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Read large and small tensors, and quantise; everyone in one process, in turn."""
    answer = probe(homes.main, "tensors.statistics_probe", rounds, homes.peer_packages() or "")
    missing = answer.get("missing", "no interpreter with the peers")

    def bench(id: str, title: str, unit: str, names: list[str], *targets: Target) -> Bench:
        made = Bench(id, title, unit, targets=[*targets], reference=names[0])
        return made.fill(answer.get(id, {}), names, missing, 1e3 if unit == "ms" else 1e6)

    return [
        *(
            bench(
                f"tensor_{dtype}",
                f"statistics of 64 Mi numbers, {dtype}, one thread",
                "ms",
                [OURS, ZEROS, LOST, BINS, PEER, OPERATIONS, SUM],
                Target(OURS, than_peer, PEER),
                Target(OURS, than_sum, SUM),
                Target(LOST, 1.8, OURS),
                Target(BINS, 1.5, OURS),
            )
            for dtype, than_peer, than_sum in (("fp32", 1 / 14, 1.3), ("bf16", 1 / 50, 2.5))
        ),
        bench(
            "tensor_small",
            "statistics of 1 Ki numbers, fp32",
            "us",
            [OURS, ZEROS, PEER, OPERATIONS],
            Target(OURS, 1 / 15, PEER),
        ),
        *(
            bench(
                f"quantise_{dtype}",
                f"16 Mi numbers to E4M3 and back, {dtype}, one thread",
                "ms",
                [QUANTISED, CHAIN, CLONE],
                Target(QUANTISED, 1 / 15, CHAIN),
            )
            for dtype in ("fp32", "bf16")
        ),
    ]
