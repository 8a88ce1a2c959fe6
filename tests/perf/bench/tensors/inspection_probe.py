"""Times calls that log nothing, idle layers and merging: `inspection_probe ROUNDS PACKAGES DIR`.

Prints seconds by bench and contestant, a list with a figure a round. All take turns in each round.
With a further argument it is one of the two ranks that merge.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor, nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.record import merge_all
from dftrace_ai.inspect.ranks.exchange import gathered

from .inspection import AGAIN, IDLE, MERGED, NOT_CONFIGURED, NOT_DUE, PEER, PLAIN
from .statistics_probe import CONFIG, rounds_of

RARE = json.loads(json.dumps(CONFIG))
RARE["bench"]["LogTensorStats"]["freq"] = 1_000_000
CALLS = 20_000
PASSES = 200
SHARED = 4 << 20
RANK_LIMIT_S = 300


def no_calls(packages: str, workdir: Path) -> dict[str, Callable[[Tensor], object]]:
    """The calls of an iteration in which nothing is due."""
    debug_api.initialize(RARE, log_dir=workdir, init_training_step=1)
    log = debug_api.log_tensor_stats
    calls: dict[str, Callable[[Tensor], object]] = {
        NOT_DUE: lambda x: log("layer", tensor=x, tensor_name="activation"),
        NOT_CONFIGURED: lambda x: log("other", tensor=x, tensor_name="activation"),
    }
    if packages:
        sys.path.append(packages)
        import nvdlfw_inspect.api as peer_api

        config = workdir / "rare.yaml"
        config.write_text(json.dumps(RARE))
        peer_api.initialize(str(config), log_dir=str(workdir), init_training_step=1)
        calls[PEER] = lambda x: peer_api.log_tensor_stats(
            "layer", tensor=x, tensor_name="activation", iteration=1
        )
    for call in calls.values():
        if call(torch.ones(1)):
            raise RuntimeError("something is due")
    return calls


def layer_passes() -> dict[str, Callable[[Tensor], object]]:
    """Forward and backward of equal layers, one of them attached."""
    layers = {name: nn.Linear(256, 256) for name in (IDLE, PLAIN, AGAIN)}
    debug_api.attach(layers[IDLE])

    def run(layer: nn.Linear) -> Callable[[Tensor], object]:
        return lambda x: layer(x).sum().backward()

    return {name: run(layer) for name, layer in layers.items()}


def rank_main(rounds: int, meeting: str, packages: str, rank: int) -> None:
    """Merge what two ranks have, in turn by records and by gathering the tensors."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    x = torch.randn(SHARED)
    record = collect(x)
    if record is None:
        raise RuntimeError("no record")
    ways: dict[str, Callable[[Tensor], object]] = {
        MERGED: lambda _: merge_all(rows[0] for rows in gathered([record], None))
    }
    if packages:
        sys.path.append(packages)
        from nvdlfw_inspect.utils import gather_along_first_dim

        ways[PEER] = lambda x: gather_along_first_dim(x, dist.group.WORLD)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for name in [*ways, *(name for _ in range(rounds) for name in ways)]:
        dist.barrier()
        begun = perf_counter_ns()
        ways[name](x)
        found[name].append((perf_counter_ns() - begun) / 1e9)
    dist.barrier()
    dist.destroy_process_group()
    # The first of each met the other rank for the first time.
    print(json.dumps({name: took[1:] for name, took in found.items()}))


def merging(rounds: int, workdir: Path, packages: str) -> Any:
    """Run both ranks; return what the first one measured."""
    command = [sys.executable, "-m", "bench.tensors.inspection_probe", str(rounds), packages]
    ranks = [
        subprocess.Popen([*command, str(workdir), str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    told = [rank.communicate(timeout=RANK_LIMIT_S)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("a rank has failed")
    return json.loads(told[0])


def main() -> None:
    rounds, packages, workdir = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    if len(sys.argv) > 4:
        rank_main(rounds, str(workdir / "meeting"), packages, int(sys.argv[4]))
        return
    answer: dict[str, Any] = {"inspect_merge": merging(rounds, workdir, packages)}
    calls = no_calls(packages, workdir)
    answer["inspect_call"] = rounds_of(calls, torch.ones(16), rounds, CALLS)
    passes = layer_passes()
    answer["inspect_idle"] = rounds_of(passes, torch.randn(64, 256), rounds, PASSES)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
