"""Who is said to be stuck, and who to be the cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from printed_json import checked

from dftrace_ai.live import RankStatus, Verdict, find_stuck, jobs_of, snapshot_json
from dftrace_ai.live.jobs import with_workers
from dftrace_ai.live.verdict_words import verdict_lines
from live.made import NOW, NS, dead, hidden, process, snapshot_of, thread
from live.programs import dftrace

TRAIN = ("pipeline.train", "pipeline.epoch.block")


def told(verdict: Verdict) -> list[str]:
    return [line for line, _ in verdict_lines(verdict)]


def lines(*processes: RankStatus, limit_s: float = 30.0, **other: object) -> list[str]:
    return told(find_stuck(snapshot_of(*processes, **other), limit_s))


def waiting(rank: int, for_s: float = 61.0, **other: object) -> RankStatus:
    return process(rank, *TRAIN, "comm.all_reduce", for_s=for_s, **other)


def test_nothing_is_stuck_below_the_limit() -> None:
    ranks = [waiting(rank, for_s=29.0) for rank in range(3)]
    verdict = find_stuck(snapshot_of(*ranks), 30.0)
    assert not verdict.stuck
    assert told(verdict) == ["nothing is stuck: 3 processes, no span quiet for longer than 29 s"]
    assert find_stuck(snapshot_of(*ranks), 28.0).stuck


def test_processes_without_a_span_are_told_so() -> None:
    assert lines(process(0), process(1)) == ["nothing is stuck: 2 processes, no span is open"]


def test_what_was_recorded_meanwhile_counts_as_life() -> None:
    busy = process(0, threads=[thread(*TRAIN, for_s=500, tid=1000, last_ns=NOW - NS // 10)])
    assert not find_stuck(snapshot_of(busy), 1.0).stuck
    assert find_stuck(snapshot_of(busy), 0.05).stuck


def test_a_thread_without_an_open_span_is_not_stuck() -> None:
    idle = process(0, threads=[thread(tid=1000, last_ns=NOW - 900 * NS)])
    assert not find_stuck(snapshot_of(idle), 1.0).stuck


def test_the_odd_one_out_is_named() -> None:
    ranks = [waiting(rank, for_s=61 + rank / 85) for rank in range(256) if rank != 17]
    odd = process(17, *TRAIN, "dataloader.fetch", for_s=63.0)
    assert lines(*ranks, odd) == [
        "255 ranks in comm.all_reduce for 61 s .. 64 s: 0-16, 18-255",
        (
            "rank 17 in dataloader.fetch for 63 s (train > epoch > fetch) step 12"
            "  <- likely cause: the others wait for it in comm.all_reduce"
        ),
    ]


def test_a_dead_rank_is_named() -> None:
    ranks = [waiting(rank, for_s=33.0) for rank in (0, 2, 3)]
    assert lines(*ranks, dead(1, *TRAIN, "comm.all_reduce", for_s=35.0)) == [
        "3 ranks in comm.all_reduce for 33 s: 0, 2-3",
        (
            "rank 1 died in comm.all_reduce, last sign of life 35 s ago "
            "(train > epoch > all_reduce) step 12  <- likely cause: it died"
        ),
    ]


def test_a_dead_rank_is_a_finding_before_anyone_is_stuck() -> None:
    verdict = find_stuck(snapshot_of(waiting(0, for_s=2.0), dead(1, "data.item", for_s=2.0)), 60.0)
    assert verdict.stuck
    assert told(verdict) == ["rank 1 died in data.item, last sign of life 2.0 s ago step 12"]


def test_a_rank_that_was_started_again_is_not_dead() -> None:
    again = process(1, "compute.forward", for_s=0.1, pid=77, started_ns=NOW - 5 * NS)
    died = dead(1, "data.item", for_s=0.0, seen_ns=NOW - 9 * NS)
    other = process(0, "compute.forward", for_s=0.1)
    assert lines(other, died, again) == [
        "nothing is stuck: 2 processes, no span quiet for longer than 0.1 s"
    ]
    before = replace(again, started_ns=NOW - 20 * NS)
    assert "rank 1 died" in lines(other, died, before)[0]


def test_a_thread_that_has_ended_is_not_stuck() -> None:
    # It left a span open, which stands there to the end of the run.
    left = thread("data.item", for_s=900.0, tid=9, name="gone", ended=True)
    busy = process(0, threads=[thread("compute.forward", for_s=0.1, tid=1000), left])
    assert not find_stuck(snapshot_of(busy), 60.0).stuck
    assert busy.place[-1].label == "compute.forward"


def test_the_thread_that_is_in_a_span_tells_where_the_process_is() -> None:
    idle = thread(tid=1000, last_ns=NOW - NS)
    work = thread("compute.forward", for_s=3.0, tid=7, name="work")
    assert process(0, threads=[idle, work]).place[-1].label == "compute.forward"
    main = thread("pipeline.train", for_s=30.0, tid=1000)
    assert process(0, threads=[main, work]).place[-1].label == "pipeline.train"


def test_workers_that_somebody_else_has_started() -> None:
    rank = process(0, "dataloader.fetch.iter")
    served = [
        process(0, "data.item", pid=50 + n, parent_pid=7, started_ns=NOW - 100 * NS)
        for n in range(2)
    ]
    own = process(0, "data.item", pid=60, parent_pid=rank.pid, started_ns=NOW - 700 * NS)
    other = process(1, "comm.all_reduce", parent_pid=7)
    told = with_workers([served[0], own, rank, served[1], other])
    assert sorted((one.pid, one.worker) for one in told) == [
        (50, True),
        (51, True),
        (60, True),
        (1000, False),
        (1001, False),
    ]


def test_a_worker_that_was_ended_is_told_and_nothing_is_stuck() -> None:
    # Loaders end their workers with every epoch, and not all of them in order.
    worker = dead(0, "data.item", for_s=9.0, pid=55, worker=True)
    verdict = find_stuck(snapshot_of(process(0, "compute.forward", for_s=0.1), worker), 60.0)
    assert not verdict.stuck
    assert told(verdict) == [
        "worker 55 of rank 0 died in data.item, last sign of life 9.0 s ago step 12",
        "nothing is stuck: 1 process, no span quiet for longer than 0.1 s",
    ]


def test_a_job_that_is_dead_as_a_whole_is_not_stuck() -> None:
    verdict = find_stuck(snapshot_of(*(dead(rank, "data.item", for_s=9.0) for rank in (0, 1))), 1.0)
    assert not verdict.stuck
    assert told(verdict) == [
        "2 ranks died in data.item, last sign of life 9.0 s ago: 0-1",
        (
            "nothing is stuck, since nothing lives: 2 processes died; "
            "`dftrace recover` finishes the traces"
        ),
    ]


def test_who_may_live_on_another_host_is_not_said_to_have_died() -> None:
    ranks = [dead(rank, "comm.all_reduce", for_s=99.0, told_s=99.0) for rank in range(2)]
    last = lines(*ranks)[-2]
    assert last == (
        "nothing is stuck, as far as is known: 2 processes told nothing for so long that nobody "
        "knows whether they live"
    )


def test_processes_of_containers_are_told_apart_though_all_have_one_number() -> None:
    facts = {"pid": 1, "world_size": 4}
    ranks = [waiting(rank, host=f"node{rank // 2}", **facts) for rank in (0, 2, 3)]
    odd = process(1, *TRAIN, "dataloader.fetch", for_s=63.0, host="node0", **facts)
    for other in (odd, replace(odd, threads=[thread(*TRAIN, for_s=0.1)])):
        verdict = find_stuck(snapshot_of(*ranks, other), 30.0)
        causes = {one.rank: one.cause for one in verdict.jobs[0].findings if one.cause}
        assert causes == {1: "the others wait for it in comm.all_reduce"}


def test_who_told_of_itself_before_the_others_came_is_not_the_one_that_they_wait_for() -> None:
    ranks = [waiting(rank, for_s=99.0) for rank in (0, 2, 3)]
    for path in (("compute.forward",), ("dataloader.fetch",)):
        for told_s, named in ((120.0, False), (98.0, True)):
            # Quiet for a moment, or for longer than the limit, when it told.
            for for_s in (0.1, 40.0):
                seen_ns = NOW - round(told_s * NS)
                at = thread(*path, for_s=told_s + for_s, last_ns=None)
                one = process(1, threads=[at], host="node2", seen_ns=seen_ns, told_s=told_s)
                verdict = find_stuck(snapshot_of(*ranks, one), 30.0)
                causes = {one.rank for one in verdict.jobs[0].findings if one.cause}
                assert causes == ({1} if named else set()), (path, told_s, for_s)


def test_a_rank_that_is_missing_is_named() -> None:
    ranks = [waiting(rank, world_size=6) for rank in (0, 1, 3)]
    assert lines(*ranks)[-1] == (
        "no process of ranks 2, 4-5  <- likely cause: no process of it is there"
    )
    # On another host they may be well.
    others = [hidden(rank) for rank in (2, 4, 5)]
    assert lines(*ranks, hidden=others) == [
        "3 ranks in comm.all_reduce for 61 s: 0-1, 3",
        "not visible from here: 3 processes of ranks 2, 4-5: run on host node2",
    ]
    assert "cause" not in "".join(lines(*ranks, hidden=[hidden(None)]))


def test_a_rank_that_goes_on_while_others_wait() -> None:
    ranks = [waiting(0), waiting(1), process(2, *TRAIN, "compute.forward", for_s=0.5)]
    assert lines(*ranks)[-1] == (
        "rank 2 goes on in compute.forward, quiet for 0.5 s (train > epoch > forward) step 12"
        "  <- likely cause: the others wait for it in comm.all_reduce"
    )
    outside = process(2, threads=[thread(tid=1002, last_ns=NOW - 80 * NS)], step=None)
    assert lines(*ranks[:2], outside)[-1].startswith("rank 2 goes on in no span, quiet for 80 s")
    # One that has come to the collective but now is waiting, too.
    assert "cause" not in "".join(lines(*ranks[:2], waiting(2, for_s=0.5)))


def test_of_ranks_in_the_same_collective_the_one_at_an_earlier_step() -> None:
    ranks = [waiting(0), waiting(1, step=11), waiting(2)]
    assert lines(*ranks)[-1].endswith(
        "step 11  <- likely cause: it is at step 11, the others at 12"
    )


def test_of_ranks_in_two_collectives_the_one_that_is_alone() -> None:
    ranks = [waiting(0), process(1, *TRAIN, "comm.barrier", for_s=61.0), waiting(2)]
    assert lines(*ranks)[-1].endswith("<- likely cause: the others are in comm.all_reduce")


def test_of_ranks_in_the_same_collective_the_one_that_came_last() -> None:
    ranks = [waiting(0), waiting(1, for_s=58.0), waiting(2)]
    assert lines(*ranks)[-1].endswith("<- likely cause: it came last, 3.0 s after the others")
    assert lines(waiting(0), waiting(1, for_s=60.5), waiting(2)) == [
        "3 ranks in comm.all_reduce for 60 s .. 61 s: 0-2"
    ]


def test_gradients_may_be_reduced_on_a_thread_of_their_own() -> None:
    def rank(number: int, *behind: str) -> RankStatus:
        pid = 1000 + number
        threads = [
            thread(*TRAIN, "compute.backward", tid=pid),
            thread(*behind, tid=1, name="autograd"),
        ]
        return process(number, threads=threads)

    found = lines(rank(0, "comm.all_reduce"), rank(1, "comm.all_reduce"))
    assert found == [
        "2 ranks in compute.backward for 60 s: 0-1",
        "2 ranks in comm.all_reduce on thread autograd for 60 s: 0-1",
    ]
    found = lines(rank(0, "comm.all_reduce"), rank(1))
    assert [line for line in found if "cause" in line] == [
        (
            "rank 1 in compute.backward for 60 s (train > epoch > backward) step 12"
            "  <- likely cause: the others wait for it in comm.all_reduce"
        )
    ]


def backward(rank: int, for_s: float = 61.0, **other: object) -> RankStatus:
    return process(rank, *TRAIN, "compute.backward", for_s=for_s, **other)


def named(*processes: RankStatus) -> list[str]:
    """The labels of those that are said to be the cause, and why."""
    (job,) = find_stuck(snapshot_of(*processes), 30.0).jobs
    return [f"{one.label}: {one.cause}" for one in job.findings if one.cause]


WAITED_FOR = "the others wait for it in compute.backward"


def test_ranks_in_a_backward_pass_wait_for_the_one_elsewhere() -> None:
    preprocess = process(1, *TRAIN, "data.preprocess", for_s=63.0)
    assert lines(backward(0), preprocess)[-1] == (
        "rank 1 in data.preprocess for 63 s (train > epoch > preprocess) step 12"
        f"  <- likely cause: {WAITED_FOR}"
    )
    assert named(backward(0), backward(2), preprocess) == [f"rank 1: {WAITED_FOR}"]
    # Those in a collective surely wait; those in a backward pass only where somebody is elsewhere.
    assert named(waiting(0), backward(2), preprocess) == [
        "rank 1: the others wait for it in comm.all_reduce"
    ]
    assert named(waiting(0), backward(2)) == ["rank 2: the others wait for it in comm.all_reduce"]
    unannotated = process(1, *TRAIN, for_s=70.0)
    assert named(backward(0), unannotated) == [f"rank 1: {WAITED_FOR}"]
    checkpoint = process(1, *TRAIN, "checkpoint.capture", for_s=70.0)
    assert named(backward(0), backward(2), checkpoint) == [f"rank 1: {WAITED_FOR}"]
    assert named(backward(0), dead(1, *TRAIN, "data.item", for_s=60.0)) == ["rank 1: it died"]
    assert named(backward(0, world_size=2)) == ["rank 1: no process of it is there"]
    derived = process(2, *TRAIN, "compute.backward.scaled", for_s=61.0)
    assert named(derived, preprocess) == [
        "rank 1: the others wait for it in compute.backward.scaled"
    ]


def test_a_rank_that_goes_on_while_others_wait_in_a_backward_pass() -> None:
    slow = process(1, *TRAIN, "data.preprocess", for_s=0.5)
    assert named(backward(0), slow) == [f"rank 1: {WAITED_FOR}"]
    # It may wait, too, for as long as it is there.
    assert named(backward(0), backward(1, for_s=0.5)) == []


def test_nobody_is_the_cause_where_all_are_in_a_backward_pass() -> None:
    assert named(backward(0), backward(1, for_s=35.0), backward(2, for_s=90.0)) == []
    assert named(backward(0), backward(1, step=11), backward(2)) == [
        "rank 1: it is at step 11, the others at 12"
    ]


def test_a_rank_past_its_backward_pass_is_not_what_others_wait_for_in_theirs() -> None:
    optimizer = process(1, *TRAIN, "compute.step", for_s=61.0)
    assert named(backward(0), optimizer) == []
    assert named(backward(0), process(1, *TRAIN, "compute.step", for_s=0.5)) == []
    assert named(backward(0, step=13), optimizer) == [f"rank 1: {WAITED_FOR}"]
    # Where steps are not known it may be one behind.
    unknown = process(1, *TRAIN, "compute.step", for_s=61.0, step=None)
    assert named(backward(0), unknown) == [f"rank 1: {WAITED_FOR}"]


def test_a_job_whose_ranks_are_slow_is_not_stuck() -> None:
    places = ["compute.backward", "data.preprocess", "checkpoint.capture", "comm.barrier"]
    ranks = [process(rank, *TRAIN, place, for_s=25.0) for rank, place in enumerate(places)]
    assert lines(*ranks) == ["nothing is stuck: 4 processes, no span quiet for longer than 25 s"]


def test_a_worker_that_its_rank_waits_for_is_named_with_it() -> None:
    ranks = [waiting(0), process(1, *TRAIN, "dataloader.fetch.iter", for_s=61.0)]
    workers = [process(r, "data.item", pid=50 + r, worker=True, for_s=62.0) for r in (0, 1)]
    causes = [line for line in lines(*ranks, *workers) if "cause" in line]
    assert causes == [
        (
            "rank 1 in dataloader.fetch.iter for 61 s (train > epoch > fetch.iter) step 12"
            "  <- likely cause: the others wait for it in comm.all_reduce"
        ),
        (
            "worker 51 of rank 1 in data.item for 62 s step 12"
            "  <- likely cause: rank 1 waits for it in dataloader.fetch.iter"
        ),
    ]


def test_without_a_collective_nobody_is_the_cause() -> None:
    ranks = [process(rank, "checkpoint.capture", for_s=70.0) for rank in range(4)]
    assert lines(*ranks) == ["4 ranks in checkpoint.capture for 70 s: 0-3"]


def test_processes_without_a_rank() -> None:
    found = lines(process(None, "data.item", pid=7), process(None, "data.item", pid=8))
    assert found == ["2 processes in data.item for 60 s: 7, 8"]


def test_ranks_that_began_a_run_each_are_one_job() -> None:
    ranks = [
        replace(waiting(rank, world_size=3), run=f"{rank:032x}", spool=f"/s/{rank}")
        for rank in range(3)
    ]
    (job,) = jobs_of(snapshot_of(*ranks))
    assert job.name == "training"
    assert [process.rank for process in job.processes] == [0, 1, 2]
    assert lines(*ranks) == ["3 ranks in comm.all_reduce for 61 s: 0-2"]


def test_ranks_of_an_earlier_job_are_not_taken_for_those_of_this_one() -> None:
    def rank(number: int, run: int, began_s: int, **other: object) -> RankStatus:
        made = waiting(number, world_size=2, started_ns=NOW - began_s * NS, **other)
        return replace(made, run=f"{run:032x}", spool=f"/s/{run}-{number}")

    early = [rank(r, r, 900, state="dead", seen_ns=NOW - 500 * NS, pid=70 + r) for r in range(2)]
    now = [rank(r, 10 + r, 400) for r in range(2)]
    jobs = jobs_of(snapshot_of(*early, *now))
    assert [[one.pid for one in job.processes] for job in jobs] == [[70, 71], [1000, 1001]]
    verdict = find_stuck(snapshot_of(*early, *now), 30.0)
    assert [job.stuck for job in verdict.jobs] == [False, True]


def test_names_cannot_steer_the_terminal() -> None:
    evil = process(0, "data.\x1b[2J\x07", "data.\u202eabc", for_s=99.0, host="a\nb")
    found = lines(evil, problems=["/x\x1b]0;t\x07: bad"], hidden=[hidden(1, host="n\x1b[1m")])
    assert all(line.isprintable() for line in found)
    assert "data.\\u202eabc" in found[0]


def test_the_verdict_as_json(tmp_path: Path) -> None:
    file = tmp_path / "seen.json"
    ranks = [waiting(0), process(1, *TRAIN, "data.item", for_s=63.0)]
    file.write_bytes(snapshot_json(snapshot_of(*ranks, hidden=[hidden(2)])))
    told = dftrace("stuck", "--json", "--idle", "30", file)
    assert told.status == 1, told.err
    verdict = checked(told.out, "stuck")
    assert (verdict["kind"], verdict["stuck"], verdict["limit_s"]) == (
        "dftrace verdict",
        True,
        30.0,
    )
    (job,) = verdict["jobs"]
    assert [(one["rank"], one["path"][-1], bool(one["cause"])) for one in job["findings"]] == [
        (0, "comm.all_reduce", False),
        (1, "data.item", True),
    ]
    assert verdict["hidden"][0]["host"] == "node2"
    calm = dftrace("stuck", "--json", "--idle", "300", file)
    assert (calm.status, checked(calm.out, "stuck")["stuck"]) == (0, False)
