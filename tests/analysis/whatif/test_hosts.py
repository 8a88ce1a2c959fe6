"""Traces of hosts that launch and wait: against closed formulas, and where nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from made_hosts import BUCKETS, MS, NAMES, MadeHosts

from dftrace_ai.analysis.ranks.clock_offsets import clocks_of
from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.ranks.partials import (
    STEPS_OF_CHUNK,
    UNTIL,
    CallRows,
    Group,
    Place,
    RankPartial,
    SilenceRows,
    SpanRows,
    StepRows,
    StepsChunk,
)
from dftrace_ai.analysis.whatif import WhatIf, gathering, whatif, whatif_of
from dftrace_ai.analysis.whatif.words import verdict_lines
from dftrace_ai.errors import ConfigError

STEPS = 30
SLOW = 3
YEAR_NS = 365 * 86400 * 10**9


def _slow(made: MadeHosts) -> None:
    made.own[SLOW, :, 1:5] += 12 * MS


def _host(made: MadeHosts) -> None:
    made.own[4:8, :, 1:5] += 12 * MS


def _pauses(made: MadeHosts) -> None:
    draw = np.random.default_rng(1)
    made.own[:, :, 2] += (draw.random(made.own.shape[:2]) < 0.05) * 150 * MS


def _data(made: MadeHosts) -> None:
    lengths = np.random.default_rng(1).lognormal(0, 0.3, made.own.shape[:2])
    made.own[:, :, 1:5] = (made.own[:, :, 1:5] * lengths[:, :, None]).astype(np.int64)


def _links(made: MadeHosts) -> None:
    made.transfer[::3] *= 30


def _half(made: MadeHosts) -> None:
    made.own[8:, :, 1:5] += 12 * MS


def _nothing(made: MadeHosts) -> None:
    del made


@pytest.mark.parametrize(
    ("plant", "cause", "ranks"),
    [
        (_slow, "worker", (SLOW,)),
        (_host, "node", (4, 5, 6, 7)),
        (_half, "split", (*range(8, 16),)),
        (_pauses, "pauses", ()),
        (_data, "data", ()),
        (_links, "communication", ()),
        (_nothing, "none", ()),
    ],
)
def test_what_a_plant_costs_is_what_formulas_say(
    plant: Callable[[MadeHosts], None], cause: str, ranks: tuple[int, ...]
) -> None:
    made = MadeHosts(16, STEPS, hosts=4)
    plant(made)
    found = whatif(made.job())
    assert found.steps is not None
    assert found.slowdown is not None
    first = found.steps.first
    true = made.took(made.own, made.transfer, first) / made.took(*made.even(), first)
    assert found.replay_error == 0
    assert abs(found.slowdown / true - 1) < 0.01
    assert found.form == "host"
    assert (found.cause.kind, found.cause.ranks) == (cause, ranks)


def test_what_a_rank_does_longer_and_when_says_what_to_try() -> None:
    found = []
    for plant in (
        lambda own: own[SLOW, :, 3].__iadd__(40 * MS),
        lambda own: own[SLOW].__imul__(2),
        lambda own: own[SLOW, ::8, 1].__iadd__(400 * MS),
        lambda own: own[SLOW, 100:, 1].__iadd__(40 * MS),
        lambda own: own[SLOW, 120:121, 1].__iadd__(9000 * MS),
    ):
        made = MadeHosts(8, 200)
        plant(made.own)
        found.append(whatif(made.job()))
        assert (found[-1].cause.kind, found[-1].cause.ranks) == ("worker", (SLOW,))
    span, machine, bursts, since, once = found
    assert verdict_lines(once)[0].startswith("ONE RANK WAS LATE ONCE")
    assert once.next.startswith("what rank 3 did in step 120: dftrace view --steps 120:121")
    assert span.next.startswith("what rank 3 does in backward and the others do not")
    assert machine.next.startswith("the machine of rank 3: clocks and temperature")
    assert bursts.cause.in_bursts
    assert verdict_lines(bursts)[0].startswith("ONE RANK PAUSES")
    assert bursts.next.startswith("what rank 3 alone does then: saving")
    assert since.cause.since == 100
    assert "since step 100" in since.what
    assert [one.cause.in_bursts for one in (span, machine, since)] == [False] * 3
    assert all(one.cause.without == one.by_rank[SLOW].without for one in found)


@pytest.mark.parametrize(("ranks", "steps", "late_ms"), [(4, 60, 40), (8, 200, 40), (4, 60, 0)])
def test_a_step_of_another_rank_hides_no_rank_that_is_late_in_all(
    ranks: int, steps: int, late_ms: int
) -> None:
    made = MadeHosts(ranks, steps)
    made.own[SLOW, :, 2] += late_ms * MS
    made.own[1, 30, 1:5] += 2000 * MS
    found = whatif(made.job())
    if not late_ms:
        assert (found.cause.kind, found.cause.ranks, found.cause.once) == ("worker", (1,), 30)
        return
    assert (found.cause.kind, found.cause.ranks, found.cause.once) == ("worker", (SLOW,), None)
    head, what, *_ = verdict_lines(found)
    assert head.startswith("ONE SLOW RANK")
    assert what.startswith("But for step 30, in which rank 1 was late once, the run is 1.")
    alone = MadeHosts(ranks, steps)
    alone.own[SLOW, :, 2] += late_ms * MS
    assert found.slowdown == pytest.approx(whatif(alone.job()).slowdown, rel=0.01)
    assert found.steps is not None
    assert (found.steps.once, found.steps.once_rank) == ((30,), 1)


@pytest.mark.parametrize("ranks", [4, 8])
def test_pauses_of_all_are_none_of_one_rank(ranks: int) -> None:
    made = MadeHosts(ranks, 60)
    made.own[SLOW, :, 3] += 40 * MS
    made.own[:, 10::20, 6] += 1500 * MS
    found = whatif(made.job())
    assert (found.cause.kind, found.cause.ranks) == ("worker", (SLOW,))
    assert verdict_lines(found)[0].startswith("ONE SLOW RANK")
    assert (found.cause.in_bursts, found.cause.since, found.cause.once) == (False, None, None)
    # Beside those of all it may have its own.
    made.own[SLOW, :, 3] -= 40 * MS
    made.own[SLOW, ::8, 1] += 400 * MS
    assert verdict_lines(whatif(made.job()))[0].startswith("ONE RANK PAUSES")


def test_on_one_host_transfers_that_take_now_more_and_now_less_are_no_slow_links() -> None:
    """As of processors that several ranks share; of a slow link all transfers are slow."""
    draw = np.random.default_rng(2)
    made = MadeHosts(4, STEPS)
    made.transfer = (made.transfer * draw.lognormal(1, 1.5, made.transfer.shape)).astype(np.int64)
    found = whatif(made.job())
    assert (found.cause.kind, found.cause.kinds) == ("jitter", ())
    assert found.next.startswith("cores for each rank of its own")
    # A little of it is everywhere, and dftrace ranks finds nobody late.
    made = MadeHosts(4, STEPS)
    made.transfer = (made.transfer * draw.lognormal(0, 1.2, made.transfer.shape)).astype(np.int64)
    little = whatif(made.job())
    assert little.slowdown is not None
    assert 1.05 < little.slowdown < 1.15
    assert (little.cause.kind, little.severity, little.next) == ("none", None, "")
    assert "by turns, now on this rank and now on that: less than 1.15 times" in little.what


def test_a_message_that_was_there_before_it_was_asked_for_took_no_longer() -> None:
    """As ranks of an interleaved pipeline, each in its own order; one of them works for long."""
    steps, own, length = 30, (10 * MS, 60 * MS), 62 * MS
    partials = []
    for rank in (0, 1):
        calls: list[tuple[int, str, int, int, str, int]] = []  # step, name, from, to, until, tag
        silent = []
        begins = 10**18 + np.arange(steps) * length
        for step, begin in enumerate(begins.tolist()):
            done = begin + MS + own[rank]
            asked = max(done, begin + MS + own[1]) if rank == 0 else done
            calls.append((step, "receive", begin, asked + rank * 1000, "waited", 0))
            if rank == 0:
                calls.append((step, "send", begin + MS // 2, begin + MS // 2 + 9, "end", 1))
            calls.append((step, "send", done, done + 9, "end", 0))
            if rank == 1:
                calls.append((step, "receive", done + 50, done + 99, "end", 1))
            else:
                silent.append((done + 20, asked, len(calls) - 3))
        names = ("compute/forward", "send", "receive")
        columns = list(zip(*calls, strict=True))
        count = len(calls)
        same = {name: np.zeros(count, np.int64) for name in ("group", "late_ns")}
        seq = np.array(columns[0])
        chunk = StepsChunk(
            StepRows(
                np.arange(steps), begins, begins + length, np.full(steps, length),
                np.array([end - at for at, end, _ in silent] or [0] * steps), 0 * begins,
            ),
            SpanRows(
                np.arange(steps), 0 * begins, begins + MS, begins + MS + own[rank], 0 * begins
            ),
            SilenceRows(*(np.array(one, np.int64) for one in (zip(*silent) if silent else ([],) * 3))),
            CallRows(
                step=seq, name=np.array([names.index(one) for one in columns[1]]),
                start_ns=np.array(columns[2]), end_ns=np.array(columns[3]),
                until=np.array([UNTIL[one] for one in columns[4]]), seq=seq, nth=seq,
                bytes=np.full(count, 1024), track=np.ones(count, np.int64),
                peer=np.full(count, 1 - rank), tag=np.array(columns[5]), **same,
            ),
        )  # fmt: skip
        place = Place(rank, 2, "node0", "one", rank, (), "made", 1, 1000 + rank)
        group = (Group("0", "world", (0, 1)),)
        partials.append(RankPartial(place, names, group, "spans", {0: chunk}, steps))
    found = whatif(RanksOfJob.of(partials))
    assert (found.form, found.unmatched) == ("host", 0)
    assert (found.cause.kind, found.cause.ranks) == ("worker", (1,))
    assert found.by_rank[1].without == pytest.approx(length / (length - 50 * MS), rel=0.1)


def test_without_a_slow_rank_the_run_takes_what_the_clean_one_does() -> None:
    slow, clean = MadeHosts(8, STEPS, hosts=2), MadeHosts(8, STEPS, hosts=2)
    _slow(slow)
    sets = ({"rank": "3"}, {"host": "node0"}, {"rank": "5", "host": "node1"})
    found = whatif(slow.job(), without=sets)
    ratio = found.measured_ns / whatif(clean.job()).measured_ns
    # The others' median is a little less than the work of one of them.
    assert abs(found.without[0].ratio / ratio - 1) < 0.02
    assert found.without[0].ranks == (3,)
    assert found.without[0].ratio == found.by_rank[3].without
    assert found.without[1].ranks == (0, 1, 2, 3)
    assert found.without[1].ratio >= found.without[0].ratio
    assert abs(found.without[2].ratio - 1) < 0.01
    assert found.by_host["node0"].recovered == pytest.approx(1, abs=0.01)
    for asked in ({"rank": "8"}, {"tp": "0"}):
        with pytest.raises(ConfigError, match="--without"):
            whatif(slow.job(), without=[asked])


def test_of_a_long_run_steps_are_chosen_evenly_over_it() -> None:
    made = MadeHosts(4, 1200)
    _slow(made)
    made.own[SLOW, :600, 1:5] -= 12 * MS
    found = whatif(made.job())
    assert found.steps is not None
    assert found.slowdown is not None
    assert found.steps.common == 1200
    assert found.steps.judged < 600
    assert found.steps.stretches > 8
    assert found.steps.first < 100
    assert found.steps.last > 1100
    true = made.took(made.own, made.transfer, 1) / made.took(*made.even(), 1)
    assert abs(found.slowdown / true - 1) < 0.02
    # Whatever steps are called.
    much = 10**18 // STEPS_OF_CHUNK
    assert whatif(_numbered(made.job(), much)).slowdown == found.slowdown


def test_no_more_is_worked_out_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeHosts(4, 1200)
    _slow(made)
    for most in (3000, 1500, 10):
        monkeypatch.setattr(gathering, "MOST_OPERATIONS", most)
        found = whatif(made.job())
        assert found.steps is not None
        assert found.steps.judged >= gathering.FEWEST_STEPS
        assert found.operations <= most or found.steps.judged == gathering.FEWEST_STEPS


def _numbered(job: RanksOfJob, more: int) -> RanksOfJob:
    """A job whose chunks have numbers that are so much greater."""
    return RanksOfJob.of(
        replace(
            one,
            chunks={
                at + more: chunk._replace(
                    steps=chunk.steps._replace(number=chunk.steps.number + more * STEPS_OF_CHUNK)
                )
                for at, chunk in one.chunks.items()
            },
        )
        for one in job.ranks
    )


def _with(job: RanksOfJob, change: Callable[[RankPartial, StepsChunk], StepsChunk]) -> RanksOfJob:
    return RanksOfJob.of(
        replace(one, chunks={at: change(one, chunk) for at, chunk in one.chunks.items()})
        for one in job.ranks
    )


def _without_calls(_: RankPartial, chunk: StepsChunk) -> StepsChunk:
    none = np.zeros(0, np.int64)
    return chunk._replace(
        calls=CallRows(*(none for _ in CallRows._fields)),
        silences=SilenceRows(*(none for _ in SilenceRows._fields)),
    )


def _other_steps(every: int, _: RankPartial, chunk: StepsChunk) -> StepsChunk:
    kept = (chunk.calls.step % every != 0) | (chunk.calls.nth % BUCKETS != 1)
    row = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    return chunk._replace(
        calls=CallRows(*(column[kept] for column in chunk.calls)),
        silences=chunk.silences._replace(call=row[chunk.silences.call]),
    )


def _long_before(one: RankPartial, chunk: StepsChunk) -> StepsChunk:
    """A rank that did all of it 50 years before the others, by a clock that it shares with them."""
    return StepsChunk(
        *(
            rows._replace(
                start_ns=rows.start_ns - (one.place.rank == 2) * 50 * YEAR_NS,
                end_ns=rows.end_ns - (one.place.rank == 2) * 50 * YEAR_NS,
            )
            for rows in chunk
        )
    )


def _unjoined(one: RankPartial, chunk: StepsChunk) -> StepsChunk:
    """The same, of which nothing tells how its times stand to theirs."""
    moved = _long_before(one, chunk)
    return _without_calls(one, moved) if one.place.rank == 2 else moved


def _turned(one: RankPartial, chunk: StepsChunk) -> StepsChunk:
    if one.place.rank == 0:
        return chunk
    place = chunk.calls.nth % BUCKETS
    return chunk._replace(
        calls=chunk.calls._replace(
            seq=chunk.calls.nth - place + BUCKETS - 1 - place,
            nth=chunk.calls.nth - place + BUCKETS - 1 - place,
        )
    )


def _broadcast_behind(late_ms: int, one: RankPartial, chunk: StepsChunk) -> StepsChunk:
    """In two steps a broadcast of rank 0, behind an all_reduce whose end is seen that late."""
    calls = chunk.calls
    here, bucket = np.isin(calls.step, (10, 20)), calls.nth % BUCKETS
    late, sent = here & (bucket == 0), here & (bucket == 1)
    done = np.repeat(calls.end_ns[bucket == 0], BUCKETS)
    until = np.maximum(calls.start_ns, done) + MS * (1 if one.place.rank else late_ms)
    return chunk._replace(
        calls=calls._replace(
            name=np.where(sent, len(NAMES), calls.name),
            peer=np.where(sent, 0, calls.peer),
            end_ns=np.where(sent, until, calls.end_ns + late * late_ms * MS),
            late_ns=late * late_ms * MS,
        )
    )


def _unsaid(found: WhatIf) -> list[str]:
    assert found.slowdown is None
    assert found.cause.kind == "abstained"
    return [one.what for one in found.abstained]


def test_where_nothing_can_be_said_the_reason_is() -> None:
    job = MadeHosts(4, STEPS).job()
    assert _unsaid(whatif(RanksOfJob.of(job.ranks[:1]))) == ["one rank"]
    assert _unsaid(whatif(MadeHosts(4, 5).job())) == ["few steps"]
    assert _unsaid(whatif(_with(job, _without_calls))) == ["no collectives"]
    assert "structure" in _unsaid(whatif(_with(job, partial(_other_steps, 2))))
    # Those that are few are left out: a trainer logs every so many steps.
    some = whatif(_with(job, partial(_other_steps, 5)))
    assert some.steps is not None
    assert (some.abstained, some.steps.odd, some.steps.judged) == ((), 5, STEPS - 1 - 5)
    assert ", without 5 in which other things are done" in verdict_lines(some)[-2]
    alike = MadeHosts(4, STEPS)
    alike.own[:] = alike.own[:1]
    even = whatif(alike.job(), without=[{"rank": "1"}])
    assert even.what.startswith("The run is as fast as with even work. ") == (even.slowdown < 1.005)
    assert "  without   rank 1: the run would take as long" in verdict_lines(even)
    apart = whatif(_with(MadeHosts(8, STEPS).job(), _unjoined))
    assert (_unsaid(apart), apart.abstained[0].names) == (["clocks"], ("node0",))


def test_times_of_a_rank_that_are_long_before_are_brought_to_the_others() -> None:
    job = MadeHosts(8, STEPS).job()
    as_they_are, moved = whatif(job), whatif(_with(job, _long_before))
    assert moved.slowdown == pytest.approx(as_they_are.slowdown, abs=0.002)
    assert moved.cause.kind == as_they_are.cause.kind


def test_what_is_queued_behind_an_end_that_was_seen_late_may_have_begun_before() -> None:
    """As in the first steps of DDP, whose ends are seen late while a machine is busy."""
    made = MadeHosts(8, STEPS)
    _slow(made)
    job = _with(made.job(), partial(_broadcast_behind, 25))
    found = whatif(RanksOfJob.of(replace(one, names=(*NAMES, "bcast")) for one in job.ranks))
    assert found.negative_transfers > 0.01 * found.transfers
    assert (found.abstained, found.cause.ranks) == ((), (SLOW,))


def _told_by_root(_: RankPartial, chunk: StepsChunk) -> StepsChunk:
    """The last transfer of each step is a broadcast of rank 0, as of whether to go on."""
    calls = chunk.calls
    sent = calls.nth % BUCKETS == BUCKETS - 1
    name, peer = np.where(sent, len(NAMES), calls.name), np.where(sent, 0, calls.peer)
    return chunk._replace(calls=calls._replace(name=name, peer=peer))


def test_a_root_that_leaves_when_a_late_rank_has_come_has_waited_for_it() -> None:
    """As on gloo: what it was there longer is no transfer."""
    made = MadeHosts(8, STEPS)
    made.own[SLOW, :, 4] += 40 * MS
    job = _with(made.job(), _told_by_root)
    found = whatif(
        RanksOfJob.of(replace(one, names=(*NAMES, "bcast")) for one in job.ranks),
        without=[{"rank": str(SLOW)}],
    )
    assert (found.cause.kind, found.cause.ranks) == ("worker", (SLOW,))
    joint = whatif(made.job(), without=[{"rank": str(SLOW)}])
    assert found.slowdown == pytest.approx(joint.slowdown, rel=0.01)
    assert found.without[0].ratio == pytest.approx(joint.without[0].ratio, rel=0.01)


def test_operations_that_are_matched_in_a_circle_are_named() -> None:
    made = MadeHosts(2, STEPS)
    # All are launched before the first is done, so that any match can be believed.
    made.own[:, :, 2:5] //= 100
    found = whatif(_with(made.job(), _turned))
    assert _unsaid(found) == ["circle"]
    assert "comm/all_reduce all of rank 0 in step" in found.abstained[0].names[0]


def test_of_some_steps_the_slowdown_is_told_and_no_cause() -> None:
    made = MadeHosts(4, 12)
    _slow(made)
    found = whatif(made.job())
    assert found.slowdown is not None
    assert found.slowdown > 1.1
    assert found.cause.kind == "abstained"
    assert [one.what for one in found.abstained] == ["few steps"]


def test_what_is_being_worked_out_is_told() -> None:
    job = MadeHosts(4, STEPS).job()
    told: list[tuple[int, int]] = []
    whatif_of(job, clocks_of(job), progress=lambda done, of: told.append((done, of)))
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize("every", [1, 8])
def test_what_one_rank_alone_has_a_span_for_is_extra_if_it_works_longer(every: int) -> None:
    """As a checkpoint, or a part of its forward that only it annotates."""
    for extra_ms, alone in ((40, True), (0, False)):
        made = MadeHosts(4, STEPS)
        clean = made.own.copy()
        made.own[SLOW, ::every, 1] += extra_ms * every * MS
        job = made.job()
        ranks = [
            _with_own_span(one, every, extra_ms * every or 20) if one.place.rank == SLOW else one
            for one in job.ranks
        ]
        found = whatif(RanksOfJob.of(ranks))
        assert found.replay_error == 0
        if not alone:
            # The others do it in their forward.
            assert found.cause.ranks == ()
            continue
        assert found.steps is not None
        first = found.steps.first
        true = made.took(made.own, made.transfer, first) / made.took(clean, made.transfer, first)
        assert (found.cause.kind, found.cause.ranks) == ("worker", (SLOW,))
        assert found.cause.excess[0].name == "compute/p_fwd"
        assert found.cause.without == pytest.approx(true, rel=0.02)


def _with_own_span(rank: RankPartial, every: int, ms: int) -> RankPartial:
    """Return a rank that annotates the end of its forward, in every so manieth step."""
    chunks = {}
    for number, chunk in rank.chunks.items():
        rows, steps = chunk.spans, chunk.steps.number
        of = np.flatnonzero((rows.name == 1) & (steps[rows.step] % every == 0))
        end = rows.end_ns.copy()
        end[of] -= ms * MS
        own = SpanRows(
            rows.step[of], np.full(len(of), len(rank.names)), end[of], rows.end_ns[of], 0 * of
        )
        both = [np.concatenate(pair) for pair in zip(rows._replace(end_ns=end), own, strict=True)]
        order = np.argsort(both[2], kind="stable")
        chunks[number] = chunk._replace(spans=SpanRows(*(column[order] for column in both)))
    return replace(rank, names=(*rank.names, "compute/p_fwd"), chunks=chunks)
