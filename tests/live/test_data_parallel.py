"""The ordinary hang of data-parallel training: one rank does not come to the backward pass."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from dftrace_ai.errors import TraceError
from dftrace_ai.live import RankStatus, judge, snapshot
from live.programs import dftrace, program, until

pytest.importorskip("torch.distributed")

SOURCE = """
    import os
    import torch
    from torch.nn.parallel import DistributedDataParallel
    import torch.distributed as dist

    RANK, WORLD = int(os.environ["RANK"]), 2
    torch.set_num_threads(1)
    dftrace_ai.initialize(rank=RANK, world_size=WORLD)
    dist.init_process_group(
        "gloo", init_method=os.environ["MEETING"], rank=RANK, world_size=WORLD
    )
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters())
    with ai.pipeline.train:
        for step, batch in enumerate(ai.dataloader.fetch.iter([torch.ones(3, 4)] * 3)):
            ai.update(step=step)
            with ai.data.preprocess:
                if step == 2 and RANK == 1:
                    done("preprocess")  # until the test has looked
            with ai.compute.forward:
                loss = model(batch).sum()
            with ai.compute.backward:
                loss.backward()
            with ai.compute.step:
                optimizer.step()
    done("trained")
"""


def places(folder: Path) -> dict[int | None, list[object]]:
    return {p.rank: [p.place[-1].label, p.step] for p in seen(folder) if p.place}


def seen(folder: Path) -> list[RankStatus]:
    try:
        return snapshot([folder]).processes
    except TraceError:
        return []  # the other has not begun


def test_the_rank_that_does_not_come_to_the_backward_pass_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    common = {
        "MEETING": f"file://{tmp_path}/meeting",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    with ExitStack() as stack:
        # Both have to run before either gets anywhere.
        ranks = [
            stack.enter_context(program(SOURCE, folder, wait=False, RANK=rank, **common))
            for rank in "01"
        ]
        hung = {0: ["compute.backward", 2], 1: ["data.preprocess", 2]}
        until(lambda: places(folder), lambda now: now == hung)
        told = dftrace("stuck", "--limit", "0", folder)
        assert told.returncode == 2, told.stderr
        first, last = told.stdout.splitlines()
        assert first.startswith("rank 0 in compute.backward for "), told.stdout
        assert "cause" not in first
        assert last.startswith("rank 1 in data.preprocess for ")
        assert last.endswith(
            "(train > fetch > preprocess) step 2"
            "  <- likely cause: the others wait for it in compute.backward"
        )
        # A second later `top` marks it as well.
        marked = until(lambda: snapshot([folder]), lambda now: any(judge(now).values()))
        words = {p.rank: [m.word for m in judge(marked)[p.identity]] for p in marked.processes}
        assert words == {0: [], 1: ["elsewhere"]}
        assert ranks[1].wait_until_ready() == "preprocess"
        ranks[1].go_on()
        for rank in ranks:
            assert rank.wait_until_ready() == "trained"
        told = dftrace("stuck", "--limit", "0", folder)
        assert told.returncode == 0, told.stdout
