"""What tensor inspection costs where nothing is due, and what merging over ranks does."""

from __future__ import annotations

from bench.processes import Homes, probe
from bench.series import Bench, Target

PEER = "nvdlfw-inspect"
NOT_DUE = "dftrace_ai, not due"
NOT_CONFIGURED = "dftrace_ai, not configured"
IDLE = "dftrace_ai, attached, nothing due"
PLAIN, AGAIN = "torch.nn.Linear", "torch.nn.Linear, again"
MERGED = "dftrace_ai, records"

PLANS: dict[str, tuple[str, list[str], list[Target]]] = {
    "inspect_call": (
        "log_tensor_stats where nothing is logged, a call",
        [NOT_DUE, NOT_CONFIGURED, PEER],
        [
            Target(NOT_DUE, 1 / 15, PEER),
            Target(NOT_CONFIGURED, 1 / 15, PEER),
            Target(NOT_DUE, 0.5),
            Target(NOT_CONFIGURED, 0.5),
        ],
    ),
    "inspect_idle": (
        "a Linear of 256 by 256 and a batch of 64, forward and backward",
        [IDLE, PLAIN, AGAIN],
        [Target(IDLE, 1.0, PLAIN, noise_of=AGAIN)],
    ),
    "inspect_merge": (
        "the statistics of 4 Mi numbers on each of two gloo ranks, merged",
        [MERGED, PEER],
        [Target(MERGED, 1 / 50, PEER)],
    ),
}


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Time calls that log nothing, a layer that is idle, and an exchange of two ranks."""
    answer = probe(homes.main, "tensors.inspection_probe", rounds, homes.peer_packages() or "")
    missing = answer.get("missing", "no interpreter with the peers")
    return [
        Bench(id, title, "us", targets=targets, reference=contestants[0]).fill(
            answer.get(id, {}), contestants, missing, 1e6
        )
        for id, (title, contestants, targets) in PLANS.items()
    ]
