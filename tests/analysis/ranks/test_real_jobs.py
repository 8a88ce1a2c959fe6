"""A real training of four ranks: whoever sleeps is told, though the others' spans are no shorter.

One plant; `make ranks-table` runs all of `real_jobs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from rank_processes import on_ranks

from dftrace_ai.analysis.ranks.job import read_ranks
from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.whatif import whatif

pytest.importorskip("torch.distributed")

STEPS = 23
SLOW, SLEEP_MS = 2, 150


@pytest.fixture(autouse=True)
def no_fork_server_stays() -> Iterator[None]:
    """Whoever begins a run is told of one that was started before it."""
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


def trained(rank: int, folder: Path) -> None:
    """Trains; one of the ranks sleeps in its backward."""
    import torch.distributed as dist
    from analysis.ranks.real_training import Late, train

    import dftrace_ai

    dftrace_ai.initialize(log_file=folder / "t", rank=rank, world_size=4)
    dftrace_ai.auto()
    train("ddp", Late("backward", SLOW, SLEEP_MS), STEPS)
    dist.barrier()
    dftrace_ai.finalize()


def test_the_rank_that_sleeps_in_its_backward_is_told(tmp_path: Path) -> None:
    on_ranks(trained, tmp_path, 4)
    job = read_ranks(open_traces([tmp_path]))
    told = lateness_of(job)
    (late,) = told.found
    assert (late.kind, late.ranks) == ("worker", (SLOW,))
    assert [one.name for one in late.names] == ["compute/backward"]
    # It sleeps so long at least, and a busy machine lets it wait a little more. What share of a step that is,
    # and so how severe, is up to how long such a machine makes the rest of the step.
    assert late.late_ns > 0.9 * SLEEP_MS * 10**6
    even = whatif(job)
    # What a very busy machine was seen to do may not go together.
    assert {one.what for one in even.abstained} <= {"replay", "negative transfers"}, even.abstained
    if even.slowdown is not None:
        assert max(even.by_rank, key=lambda rank: even.by_rank[rank].without or 0) == SLOW
    spans = [_usual_backward(rank) for rank in job.ranks]
    assert spans[SLOW] < 1.3 * min(spans), "all of them take as long"


def _usual_backward(rank: Any) -> float:
    at = rank.names.index("compute/backward")
    took = sorted(
        int(end - start)
        for chunk in rank.chunks.values()
        for name, start, end in zip(
            chunk.spans.name, chunk.spans.start_ns, chunk.spans.end_ns, strict=True
        )
        if name == at
    )
    return took[len(took) // 2]
