"""Several processes of a process group, forked from one that has imported torch already."""

from __future__ import annotations

import datetime as dt
import faulthandler
import functools
import importlib
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

LIMIT_S = 150
# A peer that has gone is noticed by the others after this time.
GROUP_LIMIT_S = 120
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
    for stream, name in ((1, f"said{rank}"), (2, f"complaints{rank}")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
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


def _run(work: Work, folder: Path, count: int, *given: Any) -> list[str]:
    """Let each rank do some work; return what each has printed."""
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
    said = [(folder / f"said{rank}").read_text() for rank in range(count)]
    # Some versions of gloo tell there whom they have met.
    return [re.sub(r"^\[Gloo\].*\n", "", text, flags=re.MULTILINE) for text in said]


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
    _run(_call, folder, count, function.__module__, function.__name__)
    return [json.loads((folder / f"found{rank}.json").read_text()) for rank in range(count)]


def _execute(rank: int, folder: Path, source: str, out: str) -> None:
    import torch
    import torch.distributed as dist
    from inspect_sessions import base_config

    import dftrace_ai.inspect as debug_api

    given = {"torch": torch, "dist": dist, "debug_api": debug_api, "base_config": base_config}
    exec(source, {"__name__": "__main__", "rank": rank, "out": out, **given})


def run_two_ranks(source: str, out: Path) -> list[str]:
    """Run a program as ranks 0 and 1; `rank`, `out`, `torch`, `dist`, `debug_api` are there.

    Returns:
        What each has printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _run(_execute, Path(folder), 2, source, str(out))
