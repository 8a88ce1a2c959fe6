"""Several processes of a process group, forked from one that has imported torch already."""

from __future__ import annotations

import datetime as dt
import faulthandler
import functools
import gc
import importlib
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

LIMIT_S = 300
# A peer that has gone is noticed by the others after this time.
GROUP_LIMIT_S = 240
# To import them takes several seconds, more than what most ranks do with them.
IMPORTED_ONCE = [
    "pytest",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "dftrace_ai.inspect",
]

Work = Callable[..., Any]


@functools.cache
def _prepared() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED_ONCE)
    return context


def _rank(rank: int, count: int, folder: Path, work: Work, given: tuple[Any, ...]) -> None:
    """What a rank does; it is alone with this module's imports."""
    gc.freeze()  # what was imported for all would be copied by each collection
    complaints = os.open(folder / f"complaints{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(complaints, stream)
    # Where one crashes is told, and where one stands that does not end.
    faulthandler.enable(file=2)
    faulthandler.dump_traceback_later(GROUP_LIMIT_S + 15, file=2)
    try:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=rank,
            world_size=count,
            timeout=dt.timedelta(seconds=GROUP_LIMIT_S),
        )
        work(rank, folder, *given)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def run_on_ranks(work: Work, folder: Path, count: int, *given: Any) -> None:
    """Let each rank do some work: it is given its rank, a folder that all share, and the rest."""
    context = _prepared()
    processes = [
        context.Process(target=_rank, args=(rank, count, folder, work, given))
        for rank in range(count)
    ]
    for rank, process in enumerate(processes):
        (folder / f"complaints{rank}").touch()
        process.start()
    limit = time.monotonic() + LIMIT_S
    try:
        for process in processes:
            process.join(max(0.0, limit - time.monotonic()))
        complaints = [(folder / f"complaints{rank}").read_text() for rank in range(count)]
        told = [text[-4000:] for text in complaints]
        ended = [process.exitcode for process in processes]
        assert ended == [0] * count, (ended, told)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _call(rank: int, folder: Path, module: str, name: str) -> None:
    import torch.distributed as dist

    found = getattr(importlib.import_module(module), name)(rank, folder)
    (folder / f"found{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def on_ranks(function: Callable[[int, Path], Any], folder: Path, count: int = 2) -> list[Any]:
    """Call a function of a test module on each rank; return what each gave, as JSON has it.

    It is given the rank and a folder that all share.
    """
    run_on_ranks(_call, folder, count, function.__module__, function.__name__)
    return [json.loads((folder / f"found{rank}.json").read_text()) for rank in range(count)]
