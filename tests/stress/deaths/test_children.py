"""Forks and workers: every child is a victim of its own."""

from __future__ import annotations

import pytest

from stress.conftest import FaultRow, NewPlace
from stress.judge import judge
from stress.nursery import Nursery

DOORS = {"fork": "os.fork", "fork_from_c": "fork from C", "clone": "bare clone system call"}


@pytest.mark.parametrize("by", DOORS)
def test_forks(by: str, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow) -> None:
    # The child of another fork than Python's would wait for threads that it does not have.
    threads = 4 if by == "fork" else 0
    name = f"{DOORS[by]} while {threads} threads record" if threads else DOORS[by]
    with fault_row(name) as row:
        for turn in range(2):
            place = new_place()
            victim = nursery.start("forks.children", place, by=by, threads=threads)
            assert victim.ended() == 0, victim.said
            row.add(judge(place, perfetto=turn == 0))


@pytest.mark.parametrize("by", DOORS)
def test_forks_inside_a_span(
    by: str, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    with fault_row(f"{DOORS[by]} inside of spans, which the child leaves, too") as row:
        place = new_place()
        victim = nursery.start("forks.inside_a_span", place, by=by)
        assert victim.ended() == 0, victim.said
        row.add(judge(place, perfetto=True))


def test_forks_three_deep(nursery: Nursery, new_place: NewPlace, fault_row: FaultRow) -> None:
    with fault_row("os.fork three deep, none ends in order") as row:
        place = new_place()
        victim = nursery.start("forks.three_deep", place)
        assert victim.ended() == 0, victim.said
        row.add(judge(place, perfetto=True))


@pytest.mark.parametrize("terminated", [False, True], ids=["joined", "terminated"])
@pytest.mark.parametrize("kind", ["processes", "pools"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(
    method: str,
    kind: str,
    terminated: bool,
    nursery: Nursery,
    new_place: NewPlace,
    fault_row: FaultRow,
) -> None:
    name = {"processes": "Process", "pools": "Pool"}[kind]
    how = "terminated" if terminated else "joined"
    with fault_row(f"multiprocessing, {method}, {name}, {how}") as row:
        place = new_place()
        victim = nursery.start(
            f"workers.{kind}", place, fresh=True, method=method, terminated=terminated
        )
        assert victim.ended() == 0, victim.said
        row.add(judge(place, perfetto=True))
