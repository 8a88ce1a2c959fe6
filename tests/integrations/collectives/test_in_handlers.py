"""Collectives in the handler of a signal, as of one that writes a checkpoint before the job ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from conftest import read_all, trace_files
from rank_processes import on_ranks

pytest.importorskip("torch.distributed")


def in_collectives(rank: int, folder: Path) -> int:
    """Interrupts collectives at each place of what follows them; returns how many there were.

    The second rank takes part in those of a round when the first is through with it: till then all of
    them are under way.
    """
    import torch
    import torch.distributed as dist
    from interruption import Interruption
    from torch.distributed.distributed_c10d import _get_default_store

    import dftrace_ai
    from dftrace_ai.integrations.torch import collective_ends as ends
    from dftrace_ai.integrations.torch import collectives

    dftrace_ai.initialize(log_file=folder / "trace", rank=rank, world_size=2)
    remove = collectives.install()
    store, modules = _get_default_store(), {Path(ends.__file__), Path(threading.__file__)}
    works = []

    def reduce() -> None:
        works.append(dist.all_reduce(torch.ones(4), async_op=True))

    place = made = 0
    through = False
    while not through:
        place += 1
        if rank == 0:
            with Interruption(place, reduce, modules) as interruption:
                reduce()
            through = not interruption.came
            store.set(f"round {place}", "1" if through else "2")
        else:
            for _ in range(int(store.get(f"round {place}"))):
                reduce()
            through = len(works) == 1
        made += len(works)
        while works:
            works.pop().wait()
    remove()
    dftrace_ai.finalize()
    return made


def test_a_handler_has_collectives_wherever_it_comes(tmp_path: Path) -> None:
    """It does not wait for what its own thread is in the middle of, and each is recorded."""
    made = on_ranks(in_collectives, tmp_path)
    traces = read_all(trace_files(tmp_path))
    assert made[0] == made[1] > 10
    assert [t.names["all_reduce"] for t in traces] == made
