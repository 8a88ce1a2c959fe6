"""What `dftrace stuck` says of a training in which nothing is annotated but its collectives."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from live.programs import dftrace, program, until

from dftrace_ai.errors import TraceError
from dftrace_ai.live import RankStatus, find_stuck, snapshot

pytest.importorskip("torch.distributed")

SOURCE = """
    import os
    import torch
    from torch.nn.parallel import DistributedDataParallel
    import torch.distributed as dist
    from dftrace_ai.integrations.torch import collectives

    RANK = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dftrace_ai.initialize()
    collectives.install()
    dist.init_process_group(
        "gloo", init_method=os.environ["MEETING"], rank=RANK, world_size=2
    )
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    for step in range(4):
        if step == 3 and RANK == 1:
            done("data")  # until the test has looked
        model(torch.ones(3, 4)).sum().backward()
    dist.destroy_process_group()
    done("trained")
"""


def waits(folder: Path) -> bool:
    """Whether rank 0 is in its last collective, and rank 1 in none."""
    try:
        processes: list[RankStatus] = snapshot([folder]).processes
    except TraceError:
        return False  # the other has not begun
    open_spans = {
        process.rank: [span.args["seq"] for thread in process.threads for span in thread.tasks]
        for process in processes
    }
    return len(open_spans) == 2 and open_spans[1] == [] and len(open_spans[0]) == 1


def test_the_rank_that_sleeps_in_its_data_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    common = {
        "MEETING": f"file://{tmp_path}/meeting",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": "2",
    }
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(program(SOURCE, folder, wait=False, RANK=str(rank), **common))
            for rank in range(2)
        ]
        assert ranks[1].wait_until_ready() == "data"
        until(lambda: waits(folder), bool)
        (job,) = find_stuck(snapshot([folder]), 0.0).jobs
        found = [(one.label, one.what, one.place, one.cause) for one in job.findings]
        assert found == [
            ("rank 0", "stuck", "comm.all_reduce", ""),
            ("rank 1", "goes on", "", "the others wait for it in comm.all_reduce"),
        ]
        told = dftrace("stuck", "--limit", "0", folder)
        assert told.returncode == 2
        assert "rank 0 in comm.all_reduce" in told.stdout
        assert "the others wait for it in comm.all_reduce" in told.stdout
        ranks[1].go_on()
        assert [rank.wait_until_ready() for rank in ranks] == ["trained", "trained"]
