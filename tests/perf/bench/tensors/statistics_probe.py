"""Times statistics and quantisation of tensors on one thread: `statistics_probe ROUNDS PACKAGES DIR`.

Prints seconds by bench and contestant, a list with a figure a round. All take turns in each round.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics.collect import collect, histogram
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import fake_quantise
from dftrace_ai.inspect.numerics.record import final_values

from .statistics import BINS, CHAIN, CLONE, LOST, OPERATIONS, OURS, PEER, QUANTISED, SUM, ZEROS

SIX = ("min", "max", "mean", "std", "l1_norm", "l2_norm")
EIGHT = (*SIX, "cur_amax", "dynamic_range")
TEN = (*EIGHT, "underflows%", "overflows%")
LARGE, MIDDLE, SMALL = 64 << 20, 16 << 20, 1 << 10
SMALL_CALLS = 300
SCALE = 100.0
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

Call = Callable[[Tensor], object]

CONFIG = {
    "bench": {
        "enabled": True,
        "layers": {"layer_types": ["layer"]},
        "LogTensorStats": {
            "enabled": True,
            "tensors": ["activation"],
            "stats": list(SIX),
            "freq": 1,
        },
    }
}


def looked_at(stats: tuple[str, ...], **how: Any) -> Call:
    """Read the tensor once, for some statistics."""

    def call(x: Tensor) -> object:
        record = collect(x, threads=1, **how)
        return record and final_values(record, stats)

    return call


def operations(x: Tensor) -> object:
    """Reduce the tensor six times, in torch's operations."""
    return [
        x.min().float(),
        x.max().float(),
        x.mean().float(),
        x.std().float(),
        torch.norm(x, p=1).float(),
        torch.norm(x, p=2).float(),
    ]


def peers_call(packages: str, workdir: Path) -> Call:
    """Return nvdlfw-inspect's own call, whose values go nowhere."""
    sys.path.append(packages)
    import nvdlfw_inspect.api as debug_api  # type: ignore[import-not-found]
    from nvdlfw_inspect.logging import BaseLogger  # type: ignore[import-not-found]

    class Nowhere(BaseLogger):  # type: ignore[misc]
        def log_scalar(self, name: str, value: Any, iteration: int, **more: Any) -> None:
            del name, value, iteration, more

    config = workdir / "inspect.yaml"
    config.write_text(json.dumps(CONFIG))  # JSON is YAML
    debug_api.initialize(str(config), statistics_logger=Nowhere(), log_dir=str(workdir))

    def call(x: Tensor) -> object:
        found = debug_api.log_tensor_stats(
            "layer", tensor=x, tensor_name="activation", skip_reduction=True, iteration=1
        )
        if len(found) != len(SIX):
            raise RuntimeError(f"{len(found)} statistics instead of six")
        return found

    return call


def cast_chain(x: Tensor) -> Tensor:
    """Quantise with torch's operations, clipped before the cast as every version needs it."""
    scaled = (x.float() * SCALE).clamp(-448.0, 448.0)
    return (scaled.to(torch.float8_e4m3fn).float() * (1 / SCALE)).to(x.dtype)


def seconds(call: Call, x: Tensor, calls: int) -> float:
    """Return what one call takes."""
    begun = perf_counter_ns()
    for _ in range(calls):
        call(x)
    return (perf_counter_ns() - begun) / calls / 1e9


def rounds_of(contestants: dict[str, Call], x: Tensor, rounds: int, calls: int) -> Any:
    """Time every contestant in each round, each after another one than in the round before."""
    for call in contestants.values():
        call(x)
    found: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            # The better of two: what else runs on the machine disturbs a call now and then.
            found[name].append(min(seconds(contestants[name], x, calls) for _ in range(2)))
    return found


def filled(count: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers, made in parts."""
    generator = torch.Generator().manual_seed(0)
    x = torch.empty(count, dtype=dtype)
    for part in torch.split(x, 1 << 20):
        part.copy_(torch.randn(part.numel(), generator=generator))
    return x


def main() -> None:
    rounds, packages, workdir = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    peers: dict[str, Call] = {}
    answer: dict[str, Any] = {}
    if packages:
        try:
            peers[PEER] = peers_call(packages, workdir)
        except ImportError as error:
            answer["missing"] = f"{type(error).__name__}: {error}"
    both: dict[str, Call] = {OURS: looked_at(SIX, zeros=False), ZEROS: looked_at(EIGHT)}
    large = {
        **both,
        LOST: looked_at(TEN, scale=SCALE, format=Format.E4M3),
        BINS: lambda x: histogram(x, threads=1),
        **peers,
        OPERATIONS: operations,
        SUM: torch.sum,
    }
    chain: dict[str, Call] = {
        QUANTISED: lambda x: fake_quantise(x, Format.E4M3, SCALE, threads=1),
        CHAIN: cast_chain,
        CLONE: torch.clone,
    }
    for name, dtype in DTYPES.items():
        answer[f"tensor_{name}"] = rounds_of(large, filled(LARGE, dtype), rounds, 1)
        answer[f"quantise_{name}"] = rounds_of(chain, filled(MIDDLE, dtype), rounds, 1)
    small = {**both, **peers, OPERATIONS: operations}
    small_x = filled(SMALL, torch.float32)
    answer["tensor_small"] = rounds_of(small, small_x, rounds, SMALL_CALLS)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
