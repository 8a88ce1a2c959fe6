"""Who is late in made jobs of many ranks: the one that was planted, and in clean ones nobody."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from analysis.ranks.made_jobs import (
    BACKWARD,
    CHECKPOINT,
    FORWARD,
    LOADER,
    MS,
    OPTIMIZER,
    PLANTS,
    SHAPES,
    SPREADS,
    STEP,
    MadeJob,
    clean_job,
    is_told,
    planted_job,
    seeded,
)

from dftrace_ai.analysis.ranks.findings import Late, Lateness
from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.ranks.model import limits_of
from dftrace_ai.analysis.ranks.own_work import OwnWork
from dftrace_ai.analysis.ranks.partials import NOT_ANNOTATED, RankPartial

KEPT = 2


def made(ranks: int, **more: int) -> MadeJob:
    return MadeJob(seeded("test", ranks), ranks, **more)


def only(told: Lateness) -> Late:
    (late,) = told.found
    return late


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("name", PLANTS)
def test_what_was_planted_is_told_and_nothing_else(name: str, ranks: int) -> None:
    for seed in range(KEPT):
        job, planted = planted_job(name, ranks, seed)
        late = only(lateness_of(job.job()))
        assert is_told(late, planted), (seed, planted, late)


def test_of_a_thousand_ranks_one_is_told() -> None:
    job, planted = planted_job("a rank that is throttled", 1024, 0)
    assert is_told(only(lateness_of(job.job())), planted)


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_in_a_clean_job_nobody_is_late(ranks: int) -> None:
    for shape in SHAPES:
        for spread in SPREADS:
            for seed in range(KEPT):
                told = lateness_of(clean_job(ranks, shape, spread, seed).job())
                assert told.found == (), (shape, spread, seed)
                assert told.slowest is not None
                assert told.slowest[1] < 0.05
                assert (told.common, told.steady, told.abstains) == (200, 199, "")


def test_figures_of_a_slow_rank() -> None:
    job = made(8)
    job.own[BACKWARD][5] += 0.3 * STEP
    job.own[FORWARD][5] += 0.1 * STEP
    told = lateness_of(job.job())
    late = only(told)
    assert (late.kind, late.turn, late.ranks, late.since) == ("worker", "persistent", (5,), None)
    assert late.late_ns == pytest.approx(0.4 * STEP, rel=0.05)
    # 80 of 200 + 80 + 8 ms, less what the slowest of the others is over the usual one.
    assert late.cost == pytest.approx(0.27, abs=0.02)
    assert late.without == pytest.approx(1 / (1 - late.cost), rel=1e-5)
    assert late.low < late.cost
    assert (late.severity, late.last_share) == ("critical", 1.0)
    (longer,) = late.names
    assert longer.name == BACKWARD
    assert longer.part == pytest.approx(0.75, abs=0.02)
    assert longer.ns == pytest.approx(0.3 * STEP, rel=0.05)
    assert told.slowest == (5, late.cost)
    assert told.step_ns == pytest.approx(1.4 * STEP + 8 * MS, rel=0.05)


def test_pauses_of_all_hide_no_slow_rank() -> None:
    job = made(4, steps=60)
    job.own[CHECKPOINT][:, 19::20] += 40 * STEP
    assert lateness_of(job.job()).found == ()
    job.own[BACKWARD][1] += 0.4 * STEP
    late = only(lateness_of(job.job()))
    assert (late.kind, late.ranks, late.severity) == ("worker", (1,), "warning")
    assert late.cost == pytest.approx(0.4 * 59 / (1.4 * 59 + 3 * 40), rel=0.1)
    assert 0.9 * late.cost < late.low < late.cost


def test_two_names_are_told_where_neither_is_half_of_it() -> None:
    job = made(8)
    for name, share in ((OPTIMIZER, 0.2), (LOADER, 0.16), (FORWARD, 0.14)):
        job.own[name][1] += share * STEP
    late = only(lateness_of(job.job()))
    assert [one.name for one in late.names] == [OPTIMIZER, LOADER]
    assert sum(one.part for one in late.names) < 0.8


def test_a_rank_far_beyond_others_that_are_late_is_told_by_itself() -> None:
    job = made(64)
    for rank, share in ((17, 0.3), (5, 0.08), (40, 0.08)):
        job.own[BACKWARD][rank] += share * STEP
    told = lateness_of(job.job())
    late = only(told)
    assert late.ranks == (17,)
    assert late.late_ns == pytest.approx(0.3 * STEP, rel=0.05)
    (others,) = told.slight
    assert others.ranks == (5, 40)
    # Of those that are late alike none is.
    job.own[BACKWARD][5] += 0.22 * STEP
    assert only(lateness_of(job.job())).ranks == (5, 17, 40)


@pytest.mark.parametrize("ranks", [16, 80])
def test_a_slow_rank_of_another_host_than_a_slow_one_accuses_no_healthy_host(ranks: int) -> None:
    # Whichever of them is later, and however far: each is told beside the other.
    for of_rank, of_host in ((0.35, 0.2), (0.3, 0.1), (0.12, 0.25)):
        job = made(ranks)
        job.own[BACKWARD][3] += of_rank * STEP
        job.own[BACKWARD][8:16] += of_host * STEP
        found = {late.kind: late for late in lateness_of(job.job()).found}
        assert found.keys() == {"worker", "node"}, (of_rank, of_host)
        assert found["worker"].ranks == (3,)
        assert found["worker"].late_ns == pytest.approx(of_rank * STEP, rel=0.2)
        assert (found["node"].hosts, found["node"].ranks) == (("node1",), (*range(8, 16),))
        assert found["node"].late_ns == pytest.approx(of_host * STEP, rel=0.2)
        assert all(late.severity != "info" for late in found.values())


def test_a_host_on_which_a_rank_has_nothing_is_not_slow() -> None:
    job = made(16)
    for rank, share in ((1, 0.2), (2, 0.12), (3, 0.25), (4, 0.15), (5, 0.2), (6, 0.2)):
        job.own[BACKWARD][rank] += share * STEP
    late = only(lateness_of(job.job()))
    assert (late.kind, late.hosts, late.ranks) == ("worker", (), (*range(1, 7),))


def test_what_lies_in_no_span_is_told_so() -> None:
    job = made(8)
    job.own[OPTIMIZER][3] += 0.3 * STEP
    # Nobody annotates the optimizer.
    bare = [unannotated(rank, OPTIMIZER) for rank in job.partials()]
    late = only(lateness_of(RanksOfJob.of(bare)))
    assert (late.ranks, late.names[0].name) == ((3,), NOT_ANNOTATED)


def test_two_of_four_that_are_late_unlike_in_no_span_are_two_causes() -> None:
    for more, told in ((1.0, [("split", (1, 2))]), (1.7, [("worker", (1,)), ("worker", (2,))])):
        job = made(4)
        job.own[OPTIMIZER][1] += more * 0.3 * STEP
        job.own[OPTIMIZER][2] += 0.3 * STEP
        bare = [unannotated(rank, OPTIMIZER) for rank in job.partials()]
        found = lateness_of(RanksOfJob.of(bare)).found
        assert [(late.kind, late.ranks) for late in found] == told
    # Each with what it costs once the other one is mended.
    for late, part in zip(found, (0.51, 0.3), strict=True):
        assert late.late_ns == pytest.approx(part * STEP, rel=0.1)
        assert late.cost == pytest.approx(part / (1 + part), abs=0.03)
    assert [late.figures.beside_ranks for late in found] == [(2,), (1,)]


def test_each_rank_may_number_its_spans_as_it_will() -> None:
    job = made(8)
    job.own[BACKWARD][3] += 0.3 * STEP
    ranks = [renamed(rank) if rank.place.rank % 2 else rank for rank in job.partials()]
    assert repr(lateness_of(RanksOfJob.of(ranks))) == repr(lateness_of(job.job()))


def renamed(rank: RankPartial) -> RankPartial:
    """The same rank with its names the other way round, behind one that it never uses."""
    names = ("all_reduce", *reversed(rank.names))
    chunks = {
        number: chunk._replace(spans=chunk.spans._replace(name=len(rank.names) - chunk.spans.name))
        for number, chunk in rank.chunks.items()
    }
    return replace(rank, names=names, chunks=chunks)


def unannotated(rank: RankPartial, name: str) -> RankPartial:
    at = rank.names.index(name)
    chunks = {
        number: chunk._replace(
            spans=type(chunk.spans)(*(column[chunk.spans.name != at] for column in chunk.spans))
        )
        for number, chunk in rank.chunks.items()
    }
    return replace(rank, chunks=chunks)


@pytest.mark.parametrize("rank", [0, 1])
def test_of_two_ranks_the_slow_one_is_told(rank: int) -> None:
    for share, told in ((0.2, True), (0.02, False)):
        job = made(2)
        job.own[FORWARD][rank] += share * STEP
        found = lateness_of(job.job()).found
        assert [one.ranks for one in found] == ([(rank,)] if told else [])


def test_several_ranks_are_told_and_two_halves_as_two_kinds() -> None:
    job = made(16)
    job.own[LOADER][[1, 6, 12]] += 0.3 * STEP
    assert only(lateness_of(job.job())).ranks == (1, 6, 12)
    job = made(4)
    job.own[FORWARD][[0, 2]] += 0.3 * STEP
    late = only(lateness_of(job.job()))
    assert (late.kind, late.ranks, late.names[0].name) == ("split", (0, 2), FORWARD)
    assert late.late_ns == pytest.approx(0.3 * STEP, rel=0.1)
    assert late.cost == pytest.approx(0.3 / 1.3, abs=0.03)
    # One that is far beyond both halves is told, and what the next one costs without it.
    job.own[LOADER][2] += 0.6 * STEP
    late, behind = lateness_of(job.job()).found
    assert (late.ranks, late.severity, late.figures.beside_ranks) == ((2,), "critical", ())
    assert (behind.ranks, behind.figures.beside_ranks) == ((0,), (2,))
    assert behind.cost == pytest.approx(0.3 / 1.3, abs=0.03)


def test_more_than_a_third_of_the_ranks_may_be_slow_alike() -> None:
    job = made(32)
    slow = (*range(1, 24, 2),)
    job.own[BACKWARD][[*slow]] += 0.15 * STEP
    assert only(lateness_of(job.job())).ranks == slow


def test_only_of_two_levels_one_is_told_since_a_step() -> None:
    # It was late before, too.
    job = made(8)
    job.own[FORWARD][3] += 0.2 * STEP
    job.own[FORWARD][3, 120:] += 0.2 * STEP
    assert only(lateness_of(job.job())).turn == "persistent"
    # It is late in most steps; that it seldom was in the first says little.
    job = made(8)
    often = job.random.random(200) < np.where(np.arange(200) < 24, 0.3, 0.8)
    job.own[FORWARD][3] += often * 0.4 * STEP
    assert only(lateness_of(job.job())).turn == "persistent"


def test_a_host_is_told_since_a_step() -> None:
    job = made(32)
    for ns in job.own.values():
        ns[8:16, 120:] *= 1.4
    late = only(lateness_of(RanksOfJob.of(job.partials(first=1000))))
    assert (late.kind, late.hosts, late.turn) == ("node", ("node1",), "since")
    assert late.ranks == (*range(8, 16),)
    assert late.since == pytest.approx(1120, abs=3)
    # Of the time since then, and not of all of it.
    assert late.cost == pytest.approx(1 - 1 / 1.4, abs=0.03)


def test_where_stages_have_one_rank_each_it_may_be_either() -> None:
    job = made(4, stages=4)
    for ns in job.own.values():
        ns[2] *= 1.4
    late = only(lateness_of(job.job()))
    assert (late.kind, late.stages, late.ranks) == ("stage or worker", (2,), (2,))
    # A stage may have more to do as it was laid out; since a step it has not.
    job = made(4, stages=4)
    for ns in job.own.values():
        ns[2, 150:] *= 1.4
    late = only(lateness_of(job.job()))
    assert (late.kind, late.ranks, late.turn) == ("stage or worker", (2,), "since")
    # No machine is slow in its forward alone.
    job = made(4, stages=4)
    job.own[FORWARD][2] += 0.3 * STEP
    late = only(lateness_of(job.job()))
    assert (late.kind, late.stages, late.ranks) == ("stage", (2,), (2,))


def test_messages_say_the_stages_of_ranks_where_no_layout_does() -> None:
    job = made(8)
    job.own[FORWARD][4:6] += 0.3 * STEP
    partials = job.partials()
    told = [replace(one, stage=at // 2) for at, one in enumerate(partials)]
    late = only(lateness_of(RanksOfJob.of(told)))
    assert (late.kind, late.stages, late.ranks) == ("stage", (2,), (4, 5))
    # Some that say none, or all of one, are no pipeline; and a layout knows better.
    some = [*told[:-1], partials[-1]]
    for others in (some, [replace(one, stage=0) for one in partials]):
        late = only(lateness_of(RanksOfJob.of(others)))
        assert (late.kind, late.ranks, late.stages) == ("worker", (4, 5), ())
    placed = [
        replace(one, place=one.place._replace(layout=(("pp", at % 2),)))
        for at, one in enumerate(told)
    ]
    assert [one.place.stage for one in RanksOfJob.of(placed).ranks] == [0, 1] * 4


def test_a_rank_is_beside_those_of_its_stage() -> None:
    job = made(16, stages=2)
    # The last stage has more to do, but not so much that it is slow.
    for ns in job.own.values():
        ns[1::2] *= 1.045
    job.own[BACKWARD][3] += 0.2 * STEP
    late = only(lateness_of(job.job()))
    assert (late.kind, late.ranks, late.stages) == ("worker", (3,), ())
    assert late.late_ns == pytest.approx(0.2 * STEP, rel=0.1)


def test_bursts_and_pauses_tell_their_steps() -> None:
    job, _ = planted_job("a checkpoint by one rank", 8, 1)
    late = only(lateness_of(job.job()))
    assert (late.turn, late.figures.steps) == ("bursts", 9)
    assert late.figures.step_numbers == (*range(20, 200, 20),)
    # The others' work in other steps counts for nothing.
    assert late.names[0].ns == pytest.approx(late.late_ns, rel=0.1)
    # It saves behind the last collective, so that they wait in the next step.
    later = only(lateness_of(RanksOfJob.of([waiting_later(rank) for rank in job.partials()])))
    assert (later.kind, later.ranks, later.figures.steps) == ("bursts", late.ranks, 9)
    # Those that are short beside the long ones are no more of them: nine are told.
    job = made(4)
    job.own[FORWARD][1, 20::20] += 3 * STEP
    job.own[FORWARD][1, 30::20] += 0.3 * STEP
    late = only(lateness_of(job.job()))
    assert (late.kind, late.ranks, late.figures.steps) == ("bursts", (1,), 9)
    assert late.late_ns == pytest.approx(3 * STEP, rel=0.05)
    job, _ = planted_job("few pauses", 8, 1)
    late = only(lateness_of(job.job()))
    assert (late.kind, late.turn, late.ranks, late.last_share) == ("pauses", "rotating", (), 0.0)
    assert late.figures.ranks_hit is not None
    assert late.figures.ranks_hit > 2
    assert late.names[0].ns == pytest.approx(300 * MS, rel=0.1)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_rank_that_is_late_once_is_told_with_its_step(times: int) -> None:
    job = made(8)
    steps = (90, 40, 140)[:times]
    for at, step in enumerate(steps):
        job.own[OPTIMIZER][5, step] += (6 - at) * STEP
    told = lateness_of(RanksOfJob.of(job.partials(first=1000)))
    if times == 3:
        # As often it comes again.
        (burst,) = told.slight
        assert (told.found, burst.kind, burst.figures.steps) == ((), "bursts", 3)
        return
    late = only(told)
    assert (late.kind, late.turn, late.ranks, late.severity) == ("once", "once", (5,), "info")
    assert (late.figures.steps, late.figures.step_numbers) == (times, (1090,))
    assert late.late_ns == pytest.approx(6 * STEP, rel=0.1)
    assert late.names[0].name == OPTIMIZER
    assert late.names[0].ns == pytest.approx(late.late_ns, rel=0.01)
    assert late.cost == pytest.approx(sum((6, 5)[:times]) / (200 + sum((6, 5)[:times])), rel=0.1)
    # Beside one that is late all the time; and of nobody, where all are late together.
    job.own[BACKWARD][2] += 0.4 * STEP
    assert [one.kind for one in lateness_of(job.job()).found] == ["worker", "once"]
    # The step of the one hides nothing of what it does in every other.
    job.own[OPTIMIZER][5, steps[0]] += 400 * STEP
    job.own[FORWARD][5] += 0.6 * STEP
    job.own[BACKWARD][2] -= 0.4 * STEP
    worker, once = lateness_of(job.job()).found
    assert (worker.kind, worker.names[0].name) == ("worker", FORWARD)
    assert worker.names[0].ns == pytest.approx(worker.late_ns, rel=0.1)
    assert worker.cost == pytest.approx(0.6 / 1.6, rel=0.2)
    assert (once.kind, once.names[0].name) == ("once", OPTIMIZER)
    job = made(8)
    job.own[OPTIMIZER][:, 90] += 6 * STEP
    assert lateness_of(job.job()).found == ()


def test_steps_that_are_a_little_long_do_not_hide_one_that_is_very_long() -> None:
    job = made(8)
    job.own[OPTIMIZER][5, 90] += 60 * STEP
    job.own[OPTIMIZER][[1, 2, 3], [30, 60, 140]] += 3 * STEP
    late = next(one for one in lateness_of(job.job()).found if one.kind == "once")
    assert (late.ranks, late.figures.step_numbers) == ((5,), (90,))


def waiting_later(rank: RankPartial) -> RankPartial:
    chunks = {}
    for number, chunk in rank.chunks.items():
        later = np.roll(chunk.steps.blocked_ns, 1)
        own = chunk.steps.time_ns - chunk.steps.blocked_ns
        chunks[number] = chunk._replace(
            steps=chunk.steps._replace(time_ns=own + later, blocked_ns=later)
        )
    return replace(rank, chunks=chunks)


def test_two_ranks_that_pause_in_turn_are_not_one() -> None:
    job = made(8)
    job.own[OPTIMIZER][1, 10::40] += 3 * STEP
    job.own[OPTIMIZER][6, 30::40] += 2 * STEP
    late = only(lateness_of(job.job()))
    assert (late.kind, late.ranks, late.figures.ranks_hit) == ("pauses", (), 2)


def test_bursts_of_one_of_a_thousand_are_told_though_somebody_always_is_late() -> None:
    job, planted = planted_job("a checkpoint by one rank", 1024, 1002)
    assert is_told(only(lateness_of(job.job(), scores=False)), planted)


def test_ranks_that_differ_by_chance_are_jitter_and_data_goes_together() -> None:
    job = made(8)
    job.own[FORWARD] += job.random.gamma(2, 0.2 * STEP, (8, 200))
    job.own[BACKWARD] += job.random.gamma(2, 0.2 * STEP, (8, 200))
    ranks = [replace(rank, place=rank.place._replace(cpus=2)) for rank in job.partials()]
    late = only(lateness_of(RanksOfJob.of(ranks)))
    assert (late.kind, late.figures.ranks_of_host, late.figures.cpus) == ("jitter", 4, 2)
    assert (late.figures.mostly, late.last_share) == (None, 0)
    assert late.figures.correlation is not None
    assert abs(late.figures.correlation) < 0.3
    job, _ = planted_job("uneven data", 8, 1)
    late = only(lateness_of(job.job()))
    assert late.figures.correlation is not None
    assert late.figures.correlation > 0.85


def test_a_rank_that_waits_for_its_workers_by_turns_has_bursts() -> None:
    job = made(4)
    # Two of six steps find nothing loaded.
    for first in (2, 5):
        job.own[LOADER][2, first::6] += (0.8 + 0.1 * first) * STEP
    late = only(lateness_of(job.job()))
    assert (late.kind, late.ranks, late.figures.ranks_hit) == ("bursts", (2,), 1)
    assert late.figures.steps == 66
    assert late.names[0].name == LOADER
    # Of a crowded host, too, where it makes nearly all of the waiting.
    ranks = [replace(one, place=one.place._replace(cpus=2, host="here")) for one in job.partials()]
    late = only(lateness_of(RanksOfJob.of(ranks)))
    assert (late.kind, late.ranks) == ("bursts", (2,))


def test_whom_a_crowded_host_lets_wait_is_not_accused() -> None:
    """What a scheduler does to one of four ranks on two processors, as in a real run."""
    job = made(4)
    draw = job.random
    for name in (FORWARD, BACKWARD):
        often = draw.random((4, 200)) < [[0.1], [0.1], [0.1], [0.8]]
        job.own[name] += often * draw.gamma(1.2, 0.2 * STEP, (4, 200))
    # With processors enough the others pause beside it, as they were made to.
    both = ["worker", "pauses"]
    for cpus, kinds in ((2, ["jitter"]), (4, both), (None, both)):
        ranks = [
            replace(one, place=one.place._replace(cpus=cpus, host="here")) for one in job.partials()
        ]
        found = lateness_of(RanksOfJob.of(ranks)).found
        assert [one.kind for one in found] == kinds, cpus
        assert found[0].figures.varies == (cpus != 2)
        # Nor is it told that it is now this one and now that.
        assert found[0].figures.mostly == (3 if cpus == 2 else None)
        assert found[0].last_share > 0.75
    # A sleep of 50 ms is told of a crowded host, too, also where another one is let wait.
    job = made(4)
    job.own[FORWARD][2] += 50 * MS
    job.own[BACKWARD][3, 80:] += job.random.gamma(0.8, 0.3 * STEP, 120)
    ranks = [replace(one, place=one.place._replace(cpus=2, host="here")) for one in job.partials()]
    assert only(lateness_of(RanksOfJob.of(ranks))).ranks == (2,)


def test_sums_of_squares_of_long_jobs_have_no_limit() -> None:
    job = made(64)
    job.own[FORWARD][::2, ::2] += 10**12
    work = OwnWork.of(job.job())
    assert work.spread_ns == pytest.approx(np.std(work.excess_ns), rel=0.01)


def test_memory_is_compared_within_stages() -> None:
    job = made(16, stages=2)
    job.peaks[1::2] *= 2
    assert lateness_of(job.job()).found == ()
    job.peaks[6] *= 1.16
    job.peaks[4] *= 1.5
    late = only(lateness_of(job.job()))
    assert (late.kind, late.ranks, late.severity, late.cost) == ("memory", (4,), "info", 0.0)
    assert late.figures.peak_bytes == int(job.peaks[4])


def test_limits_say_what_is_a_finding() -> None:
    job = made(8)
    job.own[FORWARD][3] += 0.06 * STEP
    told = lateness_of(job.job())
    assert (only(told).severity, told.slight) == ("info", ())
    told = lateness_of(job.job(), limits_of(["cost=0.01,0.02"]))
    assert only(told).severity == "critical"
    job = made(8)
    job.own[FORWARD] += 0.15 * STEP * job.random.standard_normal((8, 200)).clip(0)
    job.own[FORWARD][3] += 0.15 * STEP
    told = lateness_of(job.job(), limits_of(["cost=0.5,0.6", "rotating=0.5,0.6"]))
    assert [one.ranks for one in told.slight + told.found] == [(3,)]


def test_whoever_nobody_waits_for_is_not_late() -> None:
    job = made(8)
    job.own[FORWARD][3] += 0.3 * STEP
    # Nor where all of them wait as long for something else.
    for wait in (0, 100 * MS):
        alone = [on_its_own(rank, wait) for rank in job.partials()]
        told = lateness_of(RanksOfJob.of(alone))
        assert (told.found, told.abstains) == ((), "nobody waits")


def on_its_own(rank: RankPartial, wait: int) -> RankPartial:
    chunks = {
        number: chunk._replace(
            steps=chunk.steps._replace(
                time_ns=chunk.steps.time_ns - chunk.steps.blocked_ns + wait,
                blocked_ns=np.full_like(chunk.steps.blocked_ns, wait),
            ),
        )
        for number, chunk in rank.chunks.items()
    }
    return replace(rank, chunks=chunks)


def test_too_little_is_no_verdict() -> None:
    assert lateness_of(made(1 + 1).job()).abstains == ""
    assert lateness_of(RanksOfJob.of(made(8).partials()[:1])).abstains == "one rank"
    short = lateness_of(made(8, steps=15).job())
    assert (short.abstains, short.common, short.steady) == ("few steps", 15, 14)
    assert len(short.scores) == 8
    first, second = made(2).partials()[0], made(2).partials(first=5000)[1]
    none = lateness_of(RanksOfJob.of([first, second]))
    assert (none.abstains, none.common, none.scores) == ("no common steps", 0, ())


def test_the_steps_that_all_have_are_judged() -> None:
    job = made(8, steps=600)
    job.own[BACKWARD][5] += 0.3 * STEP
    ranks = job.partials()
    # Of one rank the middle chunk is lost, of another some steps at the end.
    ranks[2] = replace(ranks[2], chunks={at: ranks[2].chunks[at] for at in (0, 2)})
    last = ranks[3].chunks[2]
    steps = type(last.steps)(*(column[:50] for column in last.steps))
    spans = type(last.spans)(*(column[last.spans.step < 50] for column in last.spans))
    cut = last._replace(steps=steps, spans=spans)
    ranks[3] = replace(ranks[3], chunks={**ranks[3].chunks, 2: cut})
    told = lateness_of(RanksOfJob.of(ranks))
    assert told.common == 256 + 50
    assert told.judged.tolist() == [*range(1, 256), *range(512, 562)]
    assert only(told).ranks == (5,)


def test_scores_are_beside_the_others_and_the_own_best() -> None:
    job = made(8)
    job.own[BACKWARD][5] += 0.6 * STEP
    job.own[FORWARD][2, 100:] *= 3
    told = lateness_of(job.job())
    slow, throttled, usual = (told.scores[at] for at in (5, 2, 0))
    assert slow.own_ns == pytest.approx(1.6 * STEP, rel=0.05)
    assert slow.relative == pytest.approx(1 / 1.6, abs=0.03)
    assert slow.individual > 0.9
    assert slow.names[BACKWARD].relative == pytest.approx(0.5, abs=0.03)
    assert slow.names[FORWARD].relative > 0.9
    assert slow.last_share > 0.4
    assert usual.wait_ns > 0.5 * STEP
    assert usual.relative > 0.95
    assert throttled.names[FORWARD].individual < 0.4
    assert [one.rank for one in told.scores] == [*range(8)]


def test_in_whatever_order_ranks_are_read_the_figures_are_the_same() -> None:
    for name in ("uneven data", "a rank that is throttled"):
        job, _ = planted_job(name, 16, 3)
        ranks = job.partials()
        first = repr(lateness_of(RanksOfJob.of(ranks)))
        for seed in range(20):
            random.Random(seed).shuffle(ranks)
            assert repr(lateness_of(RanksOfJob.of(ranks))) == first
