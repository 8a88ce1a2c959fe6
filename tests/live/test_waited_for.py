"""Whom the ranks of a real group of four wait for, while they do: late, in turns, not come at all."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import read_all, trace_files
from printed_json import checked
from rank_processes import GROUP_LIMIT_S, on_ranks
from safety.commands import invoke

from dftrace_ai.analysis.steps.roles import role_of
from dftrace_ai.errors import TraceError
from dftrace_ai.live import (
    JobVerdict,
    Snapshot,
    WaitedFor,
    find_stuck,
    judge,
    snapshot,
    snapshot_json,
)
from dftrace_ai.live.verdict_words import finding_lines
from live.made import process, snapshot_of
from live.programs import until

RANKS = 4
LATE = 1
WINDOW_S = 600.0


def of_rank(seen: Snapshot, rank: int) -> WaitedFor | None:
    return next((one for one in seen.waited_for if one.rank == rank), None)


def late_in_turns(rank: int, folder: Path) -> list[Any]:
    """Reduces; who is late begins when it sees that it alone is waited for."""
    import torch
    import torch.distributed as dist

    import dftrace_ai

    t = torch.ones(10)
    seen: list[Any] = []
    with dftrace_ai.tracing(log_file=str(folder / "traces" / "t"), rank=rank, world_size=RANKS):
        dftrace_ai.auto(parts="collectives")
        for _ in range(2):
            dist.all_reduce(t)
        # Rank 2 five times in a row, and then each twice.
        for late in (2, 2, 2, 2, 2, 0, 1, 2, 3, 0, 1, 2, 3):
            if rank == late:
                # Nobody else any more, and for a while.
                alone = until(
                    lambda: snapshot([folder / "traces"], WINDOW_S),
                    lambda seen: bool(
                        (one := of_rank(seen, rank))
                        and one.alone_s
                        and [other.rank for other in seen.waited_for if other.now] == [rank]
                    ),
                )
                if len(seen) < 1:
                    said = invoke("stuck", folder / "traces", "--run", "all", "--idle", "600")
                    assert said.status == 0, said
                    seen += [snapshot_json(alone).decode(), said.out]
            dist.all_reduce(t)
        # Until what all have ended is there; the others go on to the barrier.
        if rank == 0:
            whole = until(
                lambda: snapshot([folder / "traces"], WINDOW_S),
                lambda seen: (
                    sum(one.last for one in seen.waited_for) == 15
                    and any(one.now == "comm.barrier" for one in seen.waited_for)
                ),
            )
            seen = [*seen[:2], *map(asdict, whole.waited_for)]
        dist.barrier()
    return [joined_late(rank, folder), *seen]


def joined_late(rank: int, folder: Path) -> list[str]:
    """Joins a group by what was imported before `auto`: rank 1, unrecorded, when it is missed."""
    import torch.distributed as dist

    import dftrace_ai

    dist.destroy_process_group()
    dftrace_ai.auto.remove()
    join = functools.partial(
        *(dist.init_process_group, "gloo", f"file://{folder / 'again'}"),
        rank=rank,
        world_size=RANKS,
        timeout=dt.timedelta(seconds=GROUP_LIMIT_S),
    )
    if rank == LATE:
        seen = until(
            lambda: joining(folder / "joins"),
            lambda seen: {one.rank for one in seen.findings if one.what == "stuck"} == {0, 2, 3},
        )
        join()
        dist.barrier()
        return [line for line, _ in finding_lines(seen.findings)]
    # Which rank it is, nobody has told: the call does.
    with dftrace_ai.tracing(log_file=str(folder / "joins" / "t")):
        dftrace_ai.auto(parts="collectives")
        join()
        dist.barrier()
        dftrace_ai.auto.remove()
    return [
        dist.init_process_group.__name__,
        *inspect.signature(dist.init_process_group).parameters,
    ]


def joining(folder: Path) -> JobVerdict:
    """What is told of the ranks that have begun to record, when there are any."""
    try:
        jobs = find_stuck(snapshot([folder], run="all"), 0.0).jobs
    except TraceError:
        jobs = ()
    return jobs[0] if len(jobs) == 1 else JobVerdict("", (), False, 0, 0, 0.0, ())


def test_who_is_late_is_waited_for(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    told = on_ranks(late_in_turns, tmp_path, RANKS)
    joined = [join for join, *_ in told]
    (_, _, _, *every), _, (_, first, said), _ = told
    checked(first, "snapshot")
    (now,) = [one for one in json.loads(first)["waited_for"] if one["now"]]
    assert (now["rank"], now["now"]) == (2, "comm.all_reduce")
    assert 0 < now["now_s"] <= now["covered_s"]
    assert "rank 2 is waited for" in said or now["alone_s"] < 1
    by_rank = {one["rank"]: one for one in every}
    assert by_rank[0]["now"] == "comm.barrier"
    assert {one["of"] for one in every} == {15}
    # Of the first two nobody knows who came last.
    assert by_rank[2]["last"] >= 7
    assert all(by_rank[rank]["last"] >= 2 for rank in (0, 1, 3))
    assert all(0 < one["alone_s"] < one["covered_s"] for one in every)

    # And in a group that one has not joined.
    # Indented stands where they are, which is torch's and the kernel's.
    waiting, never = (line for line in joined[LATE] if not line.startswith(" "))
    assert waiting.startswith("3 ranks in comm.init_process_group for ")
    assert waiting.endswith(": 0, 2-3")
    assert never == "rank 1 has no process  <- likely cause: it never came"
    assert joined[0][:3] == ["init_process_group", "backend", "init_method"]
    spans = [one for trace in read_all(trace_files(tmp_path / "joins")) for one in trace.spans]
    of_joins = [one for one in spans if one.name == "init_process_group"]
    assert [(one.cat, one.args["backend"], one.args["world_size"]) for one in of_joins] == [
        ("comm", "gloo", RANKS)
    ] * (RANKS - 1)
    # Nobody takes it for a collective.
    assert {role_of(one.cat, one.name) for one in of_joins} == {"other"}


def test_it_is_told_where_it_is_much() -> None:
    ranks = [process(rank, "comm.all_reduce") for rank in range(3)]
    one = WaitedFor("", "node1", 1, "comm.all_reduce", 0.5, 30, 36, 2.5, 5.0)
    waited = [replace(one, run=ranks[1].run), replace(one, run=ranks[1].run, rank=2, alone_s=0.1)]
    waited[1] = replace(waited[1], now_s=0.1)
    marks = judge(replace(snapshot_of(*ranks), waited_for=waited))
    told = {rank: [mark.word for mark in marks[ranks[rank].identity]] for rank in range(3)}
    assert "waited for" in told[1]
    assert not any("waited for" in told[rank] for rank in (0, 2))
