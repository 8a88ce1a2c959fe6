"""How many bytes an event takes on disk, beside dftracer's for the same content.

`python -m bench.files.sizes WHO MODE DIR` runs a training loop of nested spans with jittering phases, and
prints the bytes that its trace needs per event, compressed and plain.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from bench.processes import Homes, probe
from bench.series import Bench, Series, Target
from bench.spans.lineup import DFTRACER_ENV

SAME = "dftrace_ai, same content"
FULL = "dftrace_ai, ns, ids, parents"
LIBDEFLATE = "dftrace_ai, by libdeflate"
PEER = "pydftracer"

EPOCHS = 4
STEPS = 1200
SEED = 20

# Mean microseconds of each phase.
PHASES = {"transfer": 15.0, "forward": 90.0, "backward": 150.0, "reduce": 40.0, "step": 30.0}


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Run the workload under each contestant in turn; return compressed and plain bytes."""
    runs = {
        SAME: (homes.main, "ours", "same-content", {}),
        FULL: (homes.main, "ours", "full", {}),
        LIBDEFLATE: (homes.main, "ours", "libdeflate", {}),
        PEER: (homes.peers, "peer", "on", DFTRACER_ENV),
    }
    packed = Bench(
        "size",
        "compressed size per event, nested training loop",
        "bytes",
        targets=[
            Target(SAME, 1.0, PEER),
            Target(SAME, 0.9, PEER),
            Target(FULL, 1.8, PEER),
            Target(FULL, 0.95, LIBDEFLATE),
        ],
        reference=FULL,
        notes=[
            "Same content: integer epoch microseconds, no p_idx and no level, as dftracer's.",
            "By libdeflate: level 5, lines as in the row above it.",
        ],
    )
    plain = Bench("size_plain", "plain size per event, the same runs", "bytes", reference=FULL)
    for bench in (packed, plain):
        bench.series = [Series(label) for label in runs]
    for _ in range(rounds):
        for label, (python, who, mode, extra) in runs.items():
            answer = probe(python, "files.sizes", who, mode, extra=extra)
            packed.take(label, answer, "file_bytes_per_event")
            plain.take(label, answer, "plain_bytes_per_event")
    return [packed, plain]


def spend(mean_us: float, jitter: random.Random) -> None:
    """Keep busy for a while whose length scatters the way that of a phase does."""
    until = perf_counter_ns() + round(1000 * mean_us * jitter.lognormvariate(0.0, 0.25))
    while perf_counter_ns() < until:
        pass


def train(ai: Any) -> None:
    """Annotate every phase of every step; eight events a step."""
    jitter = random.Random(SEED)
    for epoch in ai.pipeline.epoch.iter(range(EPOCHS)):
        for step, _ in ai.dataloader.fetch.iter(enumerate(range(STEPS))):
            ai.update(epoch=epoch, step=step)
            with ai.device.transfer:
                spend(PHASES["transfer"], jitter)
            with ai.compute:
                with ai.compute.forward:
                    spend(PHASES["forward"], jitter)
                with ai.compute.backward:
                    spend(PHASES["backward"], jitter)
                    with ai.comm.all_reduce:
                        spend(PHASES["reduce"], jitter)
                with ai.compute.step:
                    spend(PHASES["step"], jitter)


def traced_by_us(mode: str, workdir: Path) -> Path:
    import dftrace_ai

    modes: dict[str, dict[str, Any]] = {
        "same-content": {"timestamps": "epoch_us", "ids": False},
        "libdeflate": {"compression_level": 5},
    }
    with dftrace_ai.tracing(log_file=workdir / "ours", **modes.get(mode, {})) as run:
        train(dftrace_ai.ai)
    return Path(run.path or "")


def traced_by_pydftracer(workdir: Path) -> Path:
    from dftracer.python import ai, dftracer

    log = dftracer.initialize_log(str(workdir / "peer"), None, -1)
    train(ai)
    log.finalize()
    return next(workdir.glob("peer*.pfw.gz"))


def main() -> None:
    """Run one contestant and print the sizes of its trace."""
    who, mode, workdir = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    path = traced_by_us(mode, workdir) if who == "ours" else traced_by_pydftracer(workdir)
    with gzip.open(path, "rb") as lines:
        plain = lines.read()
    count = sum(1 for line in plain.splitlines() if b'"dur":' in line)
    sizes = {
        "file_bytes_per_event": path.stat().st_size / count,
        "plain_bytes_per_event": len(plain) / count,
    }
    print(json.dumps(sizes))


if __name__ == "__main__":
    main()
