"""What the statistics of tensors cost a training on a GPU: `python -m bench.tensors.gpu`.

Prints two tables for docs/performance.md. Needs a CUDA device, and nvdlfw-inspect for its row.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import dftrace_ai.inspect as debug_api

from .statistics_probe import CONFIG, SIX, operations

GPU = torch.device("cuda")
SIZES = (1 << 10, 1 << 20, 64 << 20)
ROUNDS, CALLS = 9, 10
WIDTH, LAYERS, BATCH, LENGTH = 1024, 12, 8, 1024
STEPS = 10  # in a block; blocks with and without take turns
WARM_BLOCKS = 2
ALL = ["activation", "output", "gradient", "weight"]
WAYS = [  # what is looked at, how often, blocks of each kind
    (ALL, 1, 10),
    (ALL, 10, 14),
    (["gradient"], 10, 14),
    (ALL, 100, 30),
    (ALL, 1_000_000, 20),
]

Call = Callable[[Tensor], object]


class Block(nn.Module):
    """A block of a transformer: attention and a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = (*x.shape[:2], 3, WIDTH // 64, 64)
        q, k, v = self.into(self.norm(x)).view(heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def peers_call(folder: Path) -> Call | None:
    """Return the call of nvdlfw-inspect, None where it is not installed."""
    try:
        import nvdlfw_inspect.api as peer_api
    except ImportError:
        return None
    config = folder / "peer.yaml"
    config.write_text(json.dumps(CONFIG))
    peer_api.initialize(str(config), log_dir=str(folder))
    return lambda x: peer_api.log_tensor_stats(
        "layer", tensor=x, tensor_name="activation", skip_reduction=True, iteration=1
    )


def timed(calls: dict[str, Call], x: Tensor) -> dict[str, tuple[float, float]]:
    """Return microseconds a call: of the thread that calls, and until the GPU is done."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for name in [*calls, *(name for _ in range(ROUNDS) for name in calls)]:
        torch.cuda.synchronize()
        begun = perf_counter_ns()
        for _ in range(CALLS):
            calls[name](x)
        returned = perf_counter_ns()
        torch.cuda.synchronize()
        done = perf_counter_ns()
        found[name].append(((returned - begun) / CALLS / 1e3, (done - begun) / CALLS / 1e3))
    medians = {}
    for name, took in found.items():
        host, whole = zip(*took[1:], strict=True)  # the first one compiles
        medians[name] = statistics.median(host), statistics.median(whole)
    return medians


def single_calls(folder: Path) -> None:
    debug_api.initialize(CONFIG, log_dir=folder)
    calls: dict[str, Call] = {
        "dftrace_ai": lambda x: debug_api.log_tensor_stats(
            "layer", tensor=x, tensor_name="activation", skip_reduction=True
        ),
        "six operations of torch": operations,
        "torch.sum": torch.sum,
    }
    peer = peers_call(folder)
    if peer is not None:
        calls["nvdlfw-inspect"] = peer
    print("| statistics of | " + " | ".join(calls) + " |")
    print("| --- |" + " ---: |" * len(calls))
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        for size in SIZES:
            x = torch.randn(size, device=GPU).to(dtype)
            took = timed(calls, x).values()
            cells = " | ".join(f"{host:,.0f} / {whole:,.0f}" for host, whole in took)
            print(f"| {size:,} numbers, {name} | {cells} |", flush=True)
            debug_api.step()
    debug_api.end_debug()


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(LAYERS)]).to(GPU)
    return model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True)


def block(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, *, ends: bool) -> float:
    """Train for some steps; return milliseconds a step."""
    torch.cuda.synchronize()
    begun = perf_counter_ns()
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.bfloat16):
            y = model(x)
        y.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if ends:
            debug_api.step()
    torch.cuda.synchronize()
    return (perf_counter_ns() - begun) / STEPS / 1e6


def config_of(tensors: list[str], freq: int) -> dict[str, Any]:
    logged = {"enabled": True, "stats": list(SIX), "tensors": tensors, "freq": freq}
    of_all = {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}}
    return {"bench": {**of_all, "transformer_engine": {"LogTensorStats": logged}}}


def trainings(folder: Path) -> None:
    """Print what steps of a transformer cost, some blocks of them with and some without."""
    print("| looked at | every | without | with | longer by |")
    print("| --- | ---: | ---: | ---: | ---: |")
    x = torch.randn(BATCH, LENGTH, WIDTH, device=GPU)
    for tensors, freq, blocks in WAYS:
        inspected, plain = model_and_optimizer(), model_and_optimizer()
        debug_api.initialize(config_of(tensors, freq), log_dir=folder / f"{freq}{len(tensors)}")
        debug_api.attach(inspected[0])
        took: list[tuple[float, float]] = []
        for _ in range(WARM_BLOCKS + blocks):
            without = block(*plain, x, ends=False)
            took.append((without, block(*inspected, x, ends=True)))
        debug_api.end_debug()
        without, with_ = (statistics.median(one) for one in zip(*took[WARM_BLOCKS:], strict=True))
        longer = sorted(b / a - 1 for a, b in took[WARM_BLOCKS:])
        edge = math.ceil(len(longer) / 10)
        print(
            f"| {', '.join(tensors)} | {freq:,} | {without:.2f} ms | {with_:.2f} ms "
            f"| {statistics.median(longer):.1%} [{longer[edge]:.1%} .. {longer[-1 - edge]:.1%}] |",
            flush=True,
        )


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    with tempfile.TemporaryDirectory() as scratch:
        single_calls(Path(scratch))
        print()
        trainings(Path(scratch))


if __name__ == "__main__":
    main()
