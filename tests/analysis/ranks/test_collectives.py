"""What collectives take, who waits in them and for whom, and which links are slow."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from made_calls import STEP, Call, Rank, job

from dftrace_ai.analysis.ranks.collectives import bus_factor, collectives_of
from dftrace_ai.analysis.ranks.judging import Judged
from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.ranks.model import LIMITS
from dftrace_ai.analysis.ranks.partials import UNTOLD, Group

MS = 1_000_000


def joint(ranks, group, step, come, *, took=MS, name="all_reduce", size=1_000_000, **told):
    """Have ranks of a group meet; they come so many milliseconds into the step. Return the end."""
    starts = {rank: step * STEP + round(at * MS) for rank, at in come.items()}
    end = max(starts.values()) + took
    for rank, start in starts.items():
        ranks[rank].calls.append(Call(name, group, start, end, step, bytes=size, **told))
    return end


def row_of(found, name, group=None):
    return next(row for row in found.table if row.name == name and group in {None, row.group})


def near(value):
    """Return what is as told but for the bins that times are counted in."""
    return pytest.approx(value, rel=0.005)


def test_times_of_a_collective():
    ranks = [Rank(rank) for rank in range(3)]
    group = Group("0", "default", (0, 1, 2))
    for step in range(20):
        joint(ranks, group, step, {0: 10, 1: 14, 2: 20}, took=2 * MS, seq=step)
    found = collectives_of(job(ranks))
    row = row_of(found, "all_reduce")
    assert (row.count, row.bytes, row.ranks, row.across) == (20, 1_000_000, (0, 1, 2), False)
    assert (row.transfer_ns.p50, row.transfer_ns.p95) == (near(2 * MS), near(2 * MS))
    assert (row.wait_ns.p50, row.wait_ns.p95) == (near(6 * MS), near(10 * MS))
    assert row.wait_share == pytest.approx(16 / 300)
    assert row.imposed_ns_per_step == 6 * MS
    assert [(one.rank, one.share) for one in row.last] == [(2, 1.0)]
    assert row.algbw_gbs == near(0.5)
    assert row.busbw_gbs == near(0.5 * 4 / 3)
    waited = found.waited_in([2])
    assert waited == ("all_reduce", "0", 1.0, (0, 1, 2))
    assert found.waited_in([0]) is None
    assert found.count == 20


def test_factors_are_those_of_nccl_tests():
    # https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    table = {
        "all_reduce": (1.0, 1.75),
        "reduce_scatter": (0.5, 0.875),
        "all_gather": (0.5, 0.875),
        "all_to_all": (0.5, 0.875),
        "gather": (0.5, 0.875),
        "scatter": (0.5, 0.875),
        "bcast": (1.0, 1.0),
        "reduce": (1.0, 1.0),
        "send": (1.0, 1.0),
        "receive": (1.0, 1.0),
        "barrier": (None, None),
    }
    assert {name: (bus_factor(name, 2), bus_factor(name, 8)) for name in table} == table


def test_what_is_queued_has_not_begun():
    # Two buckets are launched together: the second waits for the first, and for nobody else.
    ranks = [Rank(0), Rank(1)]
    group = Group("0", "", (0, 1))
    for step in range(20):
        for number, ends in enumerate((32, 34)):
            for rank, at in ((0, 10), (1, 30)):
                start = step * STEP + at * MS + number
                ranks[rank].calls.append(
                    Call("all_reduce", group, start, step * STEP + ends * MS, step,
                         seq=2 * step + number)
                )  # fmt: skip
    row = row_of(collectives_of(job(ranks)), "all_reduce")
    assert row.count == 40
    assert (row.transfer_ns.p50, row.transfer_ns.p95) == (near(2 * MS), near(2 * MS))
    assert row.wait_share == pytest.approx(20 / 200)
    assert [(one.rank, one.share) for one in row.last] == [(1, 1.0)]


def test_who_was_held_up_by_another_is_not_to_blame():
    # A pair meets, then all of them six times; rank 1 sleeps before the pair does.
    rng = random.Random(3)
    ranks = [Rank(rank) for rank in range(4)]
    pairs, world = [Group("1", "", (0, 1)), Group("2", "", (2, 3))], Group("0", "", (0, 1, 2, 3))
    for step in range(60):
        seq = {"seq": step}
        come = {rank: 5 + rng.random() for rank in range(4)}
        come[1] += 50
        ends = {}
        for pair in pairs:
            end = joint(ranks, pair, step, {rank: come[rank] for rank in pair.ranks}, **seq)
            ends |= {rank: (end - step * STEP) / MS for rank in pair.ranks}
        for number in range(6):
            come = {rank: ends[rank] + 0.1 * rng.random() for rank in range(4)}
            end = joint(ranks, world, step, come, seq=6 * step + number)
            ends = dict.fromkeys(range(4), (end - step * STEP) / MS)
    found = collectives_of(job(ranks))
    row = row_of(found, "all_reduce", "0")
    assert {one.rank for one in row.last[:2]} == {0, 1}
    assert row.last[0].share < 0.7
    assert (row.root[0].rank, row.root[0].share > 0.95) == (1, True)
    assert (found.root[0].rank, found.root[0].share > 0.95) == (1, True)
    # One waits in the pair, two in all of them.
    waited = found.waited_in([1])
    assert (waited.group, waited.part) == ("0", pytest.approx(2 / 3, abs=0.03))


def test_buckets_that_are_under_way_together_hold_nobody_up():
    # Rank 1 sleeps between its first and its second bucket. The others launched both at once, so
    # what ended before their second is of the step before.
    ranks = [Rank(rank) for rank in range(3)]
    group = Group("0", "", (0, 1, 2))
    for step in range(30):
        joint(ranks, group, step, {0: 10, 1: 10, 2: 10}, took=8 * MS, seq=2 * step)
        joint(ranks, group, step, {0: 10.5, 1: 24, 2: 10.4}, seq=2 * step + 1)
    row = row_of(collectives_of(job(ranks)), "all_reduce")
    assert [(one.rank, one.share) for one in row.last] == [(1, 1.0)]
    assert [(one.rank, one.share) for one in row.root] == [(1, 1.0)]


def test_roots_go_on_from_one_part_of_the_run_to_the_next(monkeypatch):
    import dftrace_ai.analysis.ranks.matching as subject

    ranks = [Rank(rank) for rank in range(4)]
    pairs, world = [Group("1", "", (0, 1)), Group("2", "", (2, 3))], Group("0", "", (0, 1, 2, 3))
    for step in range(60):
        joint(ranks, pairs[0], step, {0: 5, 1: 55}, seq=step)
        joint(ranks, pairs[1], step, {2: 5, 3: 6}, seq=step)
        joint(ranks, world, step, {0: 56.5, 1: 56.4, 2: 7.1, 3: 7.2}, seq=step)
    whole = collectives_of(job(ranks))
    monkeypatch.setattr(subject, "CALLS_AT_ONCE", 7)
    parts = collectives_of(job(ranks))
    assert parts.table == whole.table
    assert parts.root == whole.root
    assert row_of(whole, "all_reduce", "0").last[0].rank == 0
    assert [one.rank for one in row_of(whole, "all_reduce", "0").root] == [1]


def test_on_hosts_whose_clocks_differ_all_is_the_same():
    rng = random.Random(1)
    ranks = [Rank(rank, host=f"node{rank // 2}", steps=range(60)) for rank in range(4)]
    group = Group("0", "", (0, 1, 2, 3))
    for step in range(60):
        come = {rank: 10 + 5 * rng.random() for rank in range(4)}
        come[2] += 20
        joint(ranks, group, step, come, seq=step)
        said = {"seq": step, "tag": 0}
        for one, other, at in ((0, 2, 50), (2, 0, 60)):
            start = step * STEP + at * MS
            ranks[one].calls.append(
                Call("send", group, start + MS, start + 2 * MS, step, peer=other, **said)
            )
            ranks[other].calls.append(
                Call("receive", group, start, start + 2 * MS, step, peer=one, **said)
            )
    same = collectives_of(job(ranks))
    apart = collectives_of(
        job([replace(rank, offset=(rank.rank // 2) * 10**9, drift=(rank.rank // 2) * 1e-5)
             for rank in ranks])
    )  # fmt: skip
    assert apart.clocks.hosts[1].offset_ns == pytest.approx(10**9 + 30_000, abs=20_000)
    for one, other in zip(same.table, apart.table, strict=True):
        assert one.name == other.name
        assert one.across
        assert one.transfer_ns.p50 == near(other.transfer_ns.p50)
        assert one.wait_share == pytest.approx(other.wait_share, rel=0.01)
        assert {rank.rank for rank in one.last[:2]} == {rank.rank for rank in other.last[:2]}
    assert row_of(apart, "send").transfer_ns.p50 == near(MS)
    assert row_of(apart, "all_reduce").last[0].rank == 2


def test_rooted_ones_take_what_they_take_the_root_and_all_to_all_may_be_uneven():
    ranks = [Rank(rank) for rank in range(3)]
    group = Group("0", "", (0, 1, 2))
    for step in range(20):
        for rank, took in ((0, 5), (1, 1), (2, 8)):
            start = step * STEP
            ranks[rank].calls.append(
                Call("bcast", group, start, start + took * MS, step, seq=2 * step, peer=1)
            )
            ranks[rank].calls.append(
                Call("all_to_all", group, start + 50 * MS, start + 52 * MS, step,
                     seq=2 * step + 1, bytes=1_000 * took)
            )  # fmt: skip
    found = collectives_of(job(ranks))
    cast = row_of(found, "bcast")
    assert cast.transfer_ns.p50 == near(MS)
    assert cast.wait_ns.p95 == near(7 * MS)
    assert cast.last == ()
    even = row_of(found, "all_to_all")
    assert (even.bytes, even.uneven) == (8_000, near(8_000 / (14_000 / 3)))


def test_a_root_waits_for_those_that_come_before_it_has_left():
    """As on gloo, of whom the one that sends is held until the other is there."""
    ranks = [Rank(rank) for rank in range(3)]
    group = Group("0", "", (0, 1, 2))
    for step in range(20):
        # The root has left before the last has come in every other step.
        until = 31 if step % 2 else 2
        for rank, came, left in ((0, 0, until), (1, 1, 3), (2, 30, 31)):
            start = step * STEP
            ranks[rank].calls.append(
                Call("bcast", group, start + came * MS, start + left * MS, step, seq=step, peer=0)
            )
    cast = row_of(collectives_of(job(ranks)), "bcast")
    assert cast.transfer_ns.p50 == cast.transfer_ns.p95 == near(MS)
    assert cast.wait_ns.p95 == near(30 * MS)
    assert [(who.rank, who.share) for who in cast.root][:1] == [(2, pytest.approx(31 / 33))]


def test_ends_that_are_not_known_are_not_told():
    ranks = [Rank(0), Rank(1)]
    group = Group("0", "", (0, 1))
    for step in range(20):
        joint(ranks, group, step, {0: 1, 1: 5}, seq=step, until="enqueued")
    found = collectives_of(job(ranks))
    row = row_of(found, "all_reduce")
    assert (row.count, row.transfer_ns, row.wait_ns, row.busbw_gbs) == (20, None, None, None)
    assert found.all_enqueued
    assert found.root == found.last == ()


def test_too_short_to_tell_how_fast_it_was():
    ranks = [Rank(0), Rank(1)]
    group = Group("0", "", (0, 1))
    for step in range(20):
        joint(ranks, group, step, {0: 1, 1: 5}, seq=step, late=MS // 2)
    row = row_of(collectives_of(job(ranks)), "all_reduce")
    assert row.transfer_ns.p50 == near(MS)
    assert row.busbw_gbs is None


def test_a_member_without_a_trace_may_have_been_the_last():
    ranks = [Rank(rank) for rank in range(3)]
    group = Group("0", "", (0, 1, 2, 3))
    for step in range(20):
        # Every fifth time rank 3, of which nothing is seen, comes 30 ms after all others.
        took = 31 * MS if step % 5 == 0 else MS
        joint(ranks, group, step, {0: 1, 1: 2, 2: 5}, took=took, seq=step)
    found = collectives_of(job(ranks, world=4))
    row = row_of(found, "all_reduce")
    assert row.count == 20
    # Of 20 the last is told of 16.
    waits = found._waits.by_root.sum()
    assert waits == 16 * 7 * MS
    one = collectives_of(job(ranks[:1], world=4))
    assert (one.table, [group.ranks for group in one.alone]) == ((), [(0, 1, 2, 3)])


@pytest.mark.parametrize("together", ["tp", "dp", "all", "nobody"])
def test_members_that_nobody_tells_are_those_that_leave_together(together):
    rng = random.Random(5)
    ranks = [Rank(2 * rank, layout=(("dp", rank // 2), ("tp", rank % 2))) for rank in range(4)]
    cells = {
        "tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)], "all": [(0, 1, 2, 3)],
        "nobody": [(0,), (1,), (2,), (3,)],
    }[together]  # fmt: skip
    group = Group("x", "", ())
    for step in range(30):
        for cell in cells:
            come = {rank: 10 + 5 * rng.random() for rank in cell}
            joint(ranks, group, step, come, seq=step)
    found = collectives_of(job(ranks, world=8))
    told = sorted(row.ranks for row in found.table)
    if together == "nobody":
        assert told == []
    else:
        assert told == [tuple(2 * rank for rank in cell) for cell in cells]
    # Of a group that is called as a dimension of the layout these are looked for; where ranks
    # leave before others have come, they are not those.
    for rank in ranks:
        rank.calls = [replace(call, group=Group("tp", "", ())) for call in rank.calls]
    told = sorted(row.ranks for row in collectives_of(job(ranks, world=8)).table)
    assert told == ([(0, 2), (4, 6)] if together in {"tp", "all"} else [])


def test_the_default_group_has_all_ranks():
    ranks = [Rank(rank, host=f"node{rank}") for rank in range(3)]
    group = Group("0", "default_pg", ())
    for step in range(20):
        joint(ranks, group, step, {0: 1, 1: 2, 2: 5}, seq=step)
    row = collectives_of(job(ranks, world=4)).table[0]
    assert (row.ranks, row.last[0].rank) == ((0, 1, 2, 3), 2)


def test_many_groups_alike_are_a_row():
    ranks = [Rank(rank) for rank in range(12)]
    groups = [Group(f"{number}", "tp", (2 * number, 2 * number + 1)) for number in range(6)]
    for step in range(20):
        for group in groups:
            come = {rank: 10 + 7 * (rank == 5) for rank in group.ranks}
            joint(ranks, group, step, come, seq=step)
    found = collectives_of(job(ranks))
    assert len(found.table) == 1
    row = found.table[0]
    assert (row.description, row.groups, row.count, row.ranks) == ("tp", 6, 120, ())
    assert [(one.rank, one.share) for one in row.root] == [(5, 1.0)]
    assert found.waited_in([5]) == ("all_reduce", "2", 1.0, (4, 5))


def test_a_slow_link_among_others_is_found():
    rng = random.Random(2)
    ranks = [Rank(rank, host=f"node{rank // 2}") for rank in range(12)]
    group = Group("0", "", tuple(range(12)))
    for step in range(40):
        for one in range(0, 12, 2):
            other = (one + 2) % 12
            start = step * STEP + 20 * MS
            took = round((6 if one != 4 else 26) * MS * (1 + 0.02 * rng.random()))
            said = {"seq": step, "tag": 0, "bytes": 4_096}
            ranks[one].calls.append(
                Call("send", group, start, start + took, step, peer=other, **said)
            )
            ranks[other].calls.append(
                Call("receive", group, start + 10, start + took, step, peer=one, **said)
            )
        joint(ranks, group, step, {rank: 80 for rank in range(12)}, seq=step)
    told = [replace(rank, steps=range(40)) for rank in ranks]
    links = collectives_of(job(told)).links
    assert [(link.ranks, link.hosts, link.links) for link in links] == [
        ((4, 6), ("node2", "node3"), 6)
    ]
    link = links[0]
    assert link.transfer_ns == pytest.approx(26 * MS, rel=0.03)
    assert link.usual_ns == pytest.approx(6 * MS, rel=0.03)
    assert link.cost == pytest.approx(0.2, rel=0.05)
    assert link.low > 0.15
    # On one host it is a link where ends are known so well, and else whoever looked for them late.
    near_by = [replace(rank, host="node0") for rank in told]
    assert len(collectives_of(job(near_by)).links) == 1
    seen_late = [
        replace(rank, calls=[replace(call, until="waited") for call in rank.calls])
        for rank in near_by
    ]
    assert collectives_of(job(seen_late)).links == ()
    # What lies between steps is time as well: here as much as they are.
    whole = job(told)
    apart = [replace(one, apart_ns=40 * STEP) for one in whole.ranks]
    (of_all,) = collectives_of(replace(whole, ranks=tuple(apart))).links
    assert of_all.cost == pytest.approx(link.cost / 2, rel=0.01)
    # What it costs is held against its limit.
    for low, found in ((0.15, ["critical"]), (0.05, ["warning"]), (0.01, [])):
        judged = Judged(job(told), lateness_of(job(told)), LIMITS)
        assert [one.severity for one in judged.findings([link._replace(low=low)])] == found


def broken_in_many_ways():
    """Return ranks of which something is wrong, by what it is."""
    group = Group("0", "", (0, 1, 2))

    def ranks(calls=True):
        made = [Rank(rank) for rank in range(3)]
        for step in range(20 if calls else 0):
            joint(made, group, step, {0: 1, 1: 2, 2: 5}, seq=step)
        return made

    def changed(change):
        made = ranks()
        made[1].calls = [call for old in made[1].calls for call in change(old)]
        return made

    yield "no calls", ranks(calls=False)
    yield "one rank", ranks()[:1]
    yield "one without calls", [*ranks()[:2], Rank(2)]
    yield (
        "no group",
        [
            replace(rank, calls=[replace(call, group=None) for call in rank.calls])
            for rank in ranks()
        ],
    )
    yield (
        "no members",
        [
            replace(rank, calls=[replace(call, group=Group("0", "", ())) for call in rank.calls])
            for rank in ranks()
        ],
    )
    yield "not a member", changed(lambda call: [replace(call, group=Group("0", "", (0, 2)))])
    yield "no seq", changed(lambda call: [replace(call, seq=UNTOLD)])
    yield "twice", changed(lambda call: [call, replace(call, start=call.start + 1)])
    yield "other names", changed(lambda call: [replace(call, name="barrier")])
    yield "other sizes", changed(lambda call: [replace(call, bytes=call.bytes + call.seq + 1)])
    yield "no step", changed(lambda call: [replace(call, step=UNTOLD)])
    yield "ends before it starts", changed(lambda call: [replace(call, end=call.start - MS)])
    yield "left before others came", changed(lambda call: [replace(call, end=call.start)])
    yield (
        "messages to nobody",
        changed(lambda call: [replace(call, name="send", peer=peer) for peer in (UNTOLD, 1, 7)]),
    )
    yield "steps that some lack", [*ranks()[:2], replace(ranks()[2], steps=range(10))]
    yield "other steps", [*ranks()[:2], replace(ranks()[2], steps=range(100, 120), calls=[])]


@pytest.mark.parametrize(("what", "ranks"), list(broken_in_many_ways()))
def test_what_is_wrong_is_left_out_and_counted(what, ranks):
    found = collectives_of(job(ranks))
    fine = {"no seq", "no step", "steps that some lack", "twice", "no group", "no members"}
    # Nobody is called last but who was.
    assert {one.rank for one in (*found.last, *found.root)} <= {2}, what
    assert bool(found.last) == (what in fine), what
    lost = found.unmatched
    counts = {
        "one without calls": (20, 0, 0),
        "twice": (20, 0, 0),
        "other names": (20, 0, 0),
        "other sizes": (20, 0, 0),
        "ends before it starts": (0, 0, 20),
        "left before others came": (0, 0, 20),
    }
    expected = counts.get(what)
    if expected is not None:
        assert (lost.collectives, lost.messages, lost.broken) == expected, what


def test_what_was_sent_while_the_rank_went_on_is_no_wait():
    """Five sends a step that last until somebody asks for them: together longer than the step."""
    group = Group("0", "", (0, 1))
    ranks = [Rank(0, steps=range(30)), Rank(1, steps=range(30))]
    for step in range(30):
        begin = step * STEP
        for number in range(5):
            at = begin + number * MS
            said = {"seq": 5 * step + number, "tag": 0, "step": step}
            ranks[0].calls.append(
                Call("send", group, at, begin + STEP - MS, peer=1, until="waited", **said)
            )
            ranks[1].calls.append(Call("receive", group, at, at + 2 * MS, peer=0, **said))
    (row,) = collectives_of(job(ranks)).table
    assert (row.count, row.wait_ns.p95, row.wait_share) == (150, 0, 0.0)
