"""Which ranks are said to differ from the others, and which are not."""

from __future__ import annotations

from dftrace_ai.live import RankStatus, judge
from live.made import NOW, NS, process, snapshot_of, thread


def words(*processes: RankStatus) -> list[list[str]]:
    marks = judge(snapshot_of(*processes))
    return [[mark.word for mark in marks[one.identity]] for one in processes]


def test_a_healthy_job_has_no_remarks() -> None:
    places = ("compute.forward", "compute.backward", "comm.all_reduce", "dataloader.fetch.iter")
    ranks = [
        process(rank, "pipeline.train", places[rank % 4], for_s=0.02, step=100 + rank % 2)
        for rank in range(16)
    ]
    assert words(*ranks) == [[]] * 16


def test_a_rank_that_is_not_where_most_are() -> None:
    ranks = [process(rank, "comm.all_reduce", for_s=30) for rank in range(7)]
    odd = process(7, "dataloader.fetch.iter", for_s=30)
    assert words(*ranks, odd) == [[]] * 7 + [["elsewhere"]]
    # For a moment it may be: the others are about to follow.
    assert words(*ranks, process(7, "compute.forward", for_s=0.1)) == [[]] * 8


def test_of_two_ranks_the_one_that_waits_is_not_the_one_to_look_at() -> None:
    assert words(process(0, "comm.all_reduce"), process(1, "data.item")) == [[], ["elsewhere"]]
    assert words(process(0, "compute.forward"), process(1, "data.item")) == [[], []]


def test_who_waits_in_a_backward_pass_is_not_the_one_to_look_at() -> None:
    backward, item = process(0, "compute.backward"), process(1, "data.preprocess")
    assert words(backward, item) == [[], ["elsewhere"]]
    assert words(process(0, "comm.all_reduce"), process(1, "compute.backward")) == [
        [],
        ["elsewhere"],
    ]
    both = [process(0, "comm.all_reduce"), process(1, "compute.backward")]
    assert words(*both, process(2, "data.preprocess")) == [[], [], ["elsewhere"]]
    brief = process(0, "compute.backward", for_s=0.5)
    assert words(brief, process(1, "data.preprocess", for_s=0.5)) == [[], []]


def test_a_rank_without_an_open_span_is_elsewhere_too() -> None:
    idle = process(2, threads=[thread(tid=1002, last_ns=NOW - 40 * NS)])
    others = [process(rank, "comm.all_reduce", for_s=30) for rank in (0, 1)]
    assert words(*others, idle) == [[], [], ["elsewhere"]]


def test_steps_behind_the_median() -> None:
    steps = [100, 100, 99, 98, 100]
    ranks = [process(r, "compute.forward", for_s=0.01, step=s) for r, s in enumerate(steps)]
    assert words(*ranks) == [[], [], [], ["behind"], []]


def test_steps_begin_again_with_each_epoch() -> None:
    # The last step of an epoch and the first of the next one are a step apart.
    at = [(1, 0), (1, 0), (0, 99), (1, 0)]
    ranks = [
        process(r, "compute.forward", for_s=0.01, epoch=e, step=s) for r, (e, s) in enumerate(at)
    ]
    assert words(*ranks) == [[]] * 4
    ranks[2] = process(2, "compute.forward", for_s=0.01, epoch=0, step=99)
    ranks[:2] = [process(r, "compute.forward", for_s=0.01, epoch=1, step=7) for r in (0, 1)]
    assert words(*ranks[:3]) == [[], [], ["behind"]]


def test_rates_far_from_the_usual_one() -> None:
    rates = [100.0, 101.0, 99.0, 100.5, 60.0, 180.0]
    ranks = [
        process(r, "compute.forward", for_s=0.01, events_per_s=rate) for r, rate in enumerate(rates)
    ]
    assert words(*ranks) == [[], [], [], [], ["slow"], ["busy"]]
    # Three ranks do not tell what is usual, and a few per cent are not unusual.
    assert words(*ranks[2:5]) == [[]] * 3
    assert words(*ranks[:4]) == [[]] * 4


def test_dead_ones_and_losses_are_told_of_workers_too() -> None:
    worker = process(0, "data.item", pid=5, worker=True, state="dead", dropped=3)
    full = process(1, "compute.forward", for_s=0.01, write_error="No space left on device")
    assert words(worker, full) == [["dead", "drops"], ["unwritable"]]


def test_workers_are_not_held_against_ranks() -> None:
    ranks = [process(rank, "comm.all_reduce") for rank in range(3)]
    workers = [process(rank, "data.item", pid=50 + rank, worker=True, step=1) for rank in range(3)]
    assert words(*ranks, *workers) == [[]] * 6


def test_jobs_are_judged_by_themselves() -> None:
    ranks = [process(rank, "comm.all_reduce") for rank in range(3)]
    other = process(0, "data.item", pid=77, run="00" * 16)
    assert words(*ranks, other) == [[]] * 4
