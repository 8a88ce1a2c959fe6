"""A training loop of nested spans with jittering phases, for sizes: `workload WHO MODE DIR`.

Prints the bytes a trace needs per event, compressed and plain.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import Any

EPOCHS = 4
STEPS = 1200
SEED = 20

# Mean microseconds of each phase.
PHASES = {"transfer": 15.0, "forward": 90.0, "backward": 150.0, "reduce": 40.0, "step": 30.0}


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
    """Run the workload under dftrace_ai; return the trace."""
    import dftrace_ai

    modes: dict[str, dict[str, Any]] = {
        "same-content": {"timestamps": "epoch_us", "ids": False},
        "libdeflate": {"compression_level": 5},
    }
    with dftrace_ai.tracing(log_file=workdir / "ours", **modes.get(mode, {})) as run:
        train(dftrace_ai.ai)
    return Path(run.path or "")


def traced_by_pydftracer(workdir: Path) -> Path:
    """Run the workload under pydftracer; return the trace."""
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
        "events": count,
        "file_bytes_per_event": path.stat().st_size / count,
        "plain_bytes_per_event": len(plain) / count,
    }
    print(json.dumps(sizes))


if __name__ == "__main__":
    main()
