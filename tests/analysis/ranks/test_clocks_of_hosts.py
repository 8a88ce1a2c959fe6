"""Clocks of hosts that are seconds apart and drift come back to one, within what is told."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from analysis.trace_lines import TraceLines
from made_calls import STEP, Call, Rank, clocked, job

from dftrace_ai.analysis.ranks.clock_offsets import ClockOfHost, Clocks, clocks_of
from dftrace_ai.analysis.ranks.matching import Matching
from dftrace_ai.analysis.ranks.partials import Group
from dftrace_ai.analysis.ranks.verdict import judge_ranks, ranks


def made(
    seed, *, hosts=4, a_host=2, steps=300, each=3, late_rank=None, notice=60_000, polled=False
):
    """Return ranks of hosts whose clocks are +-2 s and +-20 ppm apart."""
    rng = random.Random(seed)
    offsets = [rng.uniform(-2e9, 2e9) for _ in range(hosts)]
    drifts = [rng.uniform(-20e-6, 20e-6) for _ in range(hosts)]
    ranks = [
        Rank(
            rank, host=f"node{rank // a_host}", steps=range(steps),
            offset=round(offsets[rank // a_host]), drift=drifts[rank // a_host],
        )
        for rank in range(hosts * a_host)
    ]  # fmt: skip
    group = Group("0", "default", tuple(range(len(ranks))))
    for step in range(steps):
        for number in range(each):
            begin = step * STEP + number * 30_000_000
            come = [begin + round(rng.uniform(0, 5e6)) for _ in ranks]
            if late_rank is not None:
                come[late_rank] += 20_000_000
            left = max(come) + 1_200_000
            for rank in ranks:
                seen = left + round(abs(rng.gauss(0, notice)))
                late = 0
                if polled:
                    late = (left - come[rank.rank]) // 8
                    seen = left + round(rng.uniform(0, late))
                rank.calls.append(
                    Call("all_reduce", group, come[rank.rank], seen, step, late=late,
                         seq=step * each + number)
                )  # fmt: skip
    return ranks


def held(clocks, ranks, seconds):
    """Return how far ranks are from the reference at some moments, and what is told of that."""
    at = [round(share * seconds * 1e9) for share in (0, 0.3, 0.7, 1)]
    reference = next(one for one in clocks.hosts if one.state == "reference")
    of_reference = next(rank for rank in ranks if rank.host == reference.host)
    usual = clocks.corrected(of_reference.rank, clocked(of_reference, at))
    found = []
    for rank in ranks:
        told = clocks.hosts[clocks.clock[rank.rank]]
        apart = clocks.corrected(rank.rank, clocked(rank, at)) - usual
        found.append((int(np.abs(apart).max()), told))
    return found


@pytest.mark.parametrize("how", [{}, {"late_rank": 3}, {"polled": True}, {"hosts": 8, "a_host": 1}])
def test_offsets_and_drifts_come_back_within_what_is_told(how):
    for seed in range(3):
        ranks = made(seed, **how)
        clocks = clocks_of(job(ranks))
        assert [one.state for one in clocks.hosts].count("reference") == 1
        for error, told in held(clocks, ranks, 30):
            if told.state == "reference":
                assert error == 0
                continue
            assert told.state == "calibrated"
            assert error <= told.typical_ns
            assert error <= told.certain_ns
            if not how or "hosts" in how:
                assert error <= 20_000
        assert clocks.uncertainty_ns < 5_000_000
        assert clocks.unjoined == ()


def with_calls(ranks, change):
    """Return ranks with other calls: what a function makes of each, None for none."""
    for rank in ranks:
        changed = (change(rank, call) for call in rank.calls)
        rank.calls = [call for call in changed if call is not None]
    return ranks


def states(ranks):
    return {one.host: (one.state, one.reason, one.shared) for one in clocks_of(job(ranks)).hosts}


def test_a_clock_that_cannot_be_compared_is_told_with_its_reason():
    others = Group("1", "", tuple(range(6)))

    def without(kept):
        """Return what moves all calls but some to a group in which node3 is not."""

        def moved(rank, call):
            if call.seq < kept:
                return call
            return None if rank.host == "node3" else replace(call, group=others)

        return moved

    def only_enqueued(rank, call):
        return replace(call, until="enqueued")

    few = states(with_calls(made(1, steps=20), without(5)))
    assert few.pop("node3") == ("not calibrated", "few in common", 5)
    assert {state for state, *_ in few.values()} == {"reference", "calibrated"}
    none = clocks_of(job(with_calls(made(1, steps=20), without(0))))
    assert none.hosts[3][2:-2] == (
        *("not calibrated", 0, None, None, None, 0),
        "none in common",
        0,
        (),
        0,
    )
    assert none.unjoined == ("node3",)
    assert none.error_ns.tolist()[3] == -1
    all_ = states(with_calls(made(1, steps=20), only_enqueued))
    assert list(all_.values()).count(("not calibrated", "enqueued", 0)) == 3

    # The clock of a host is set by 10 ms, so late that little is known of it from then on.
    jumped = clocks_of(job(set_by(made(1, steps=20, each=1), {"node2": {14: 10**7}}))).hosts[2]
    assert (jumped.state, jumped.reason) == ("not calibrated", "contradiction")
    assert 5_000_000 < jumped.contradiction_ns < 10_000_000


def set_by(ranks, jumps):
    """Return ranks whose hosts' clocks are set: by the number of a collective so many nanoseconds."""
    for rank in ranks:
        steps = jumps.get(rank.host, {})

        def seen(call, steps=steps):
            more = sum(ns for first, ns in steps.items() if call.seq >= first)
            return replace(call, start=call.start + more, end=call.end + more)

        rank.calls = [seen(call) for call in rank.calls]
    return ranks


@pytest.mark.parametrize(
    "jumps",
    [
        {"node2": {10: 10**7}},
        {"node2": {30: 10**7}},
        # As few before or behind it as tell of a clock at all.
        {"node2": {9: 10**7}, "node1": {890: 10**7}},
        {"node1": {450: 5_000_000}, "node3": {200: -10_000_000, 600: 800_000_000}},
        {"node0": {300: 2_000_000}, "node2": {600: 2_000_000}},
    ],
)
def test_a_clock_that_is_set_while_it_runs_is_cut_where_it_is(jumps):
    few = max(first for of in jumps.values() for first in of) < 20
    ranks = made(5, **({"steps": 20, "each": 1} if few else {}))
    clocks = clocks_of(job(set_by(ranks, jumps)))
    assert clocks.unjoined == ()
    reference = next(one.host for one in clocks.hosts if one.state == "reference")
    mine = jumps.pop(reference, {})
    for one in clocks.hosts:
        # What the reference is set by seems to be done to all others, the other way round.
        told = jumps.get(one.host, {}) | {first: -ns for first, ns in mine.items()}
        wanted = [] if one.host == reference else [ns for _, ns in sorted(told.items())]
        assert one.jumps_ns == pytest.approx(wanted, abs=100_000), one
    # All leave each collective together, by clocks as they are then.
    ends = [
        clocks.corrected(rank.rank, clocked(rank, [call.end for call in rank.calls]))
        for rank in ranks
    ]
    same = [
        clocks.of_clock(
            clocked(rank, [call.end for call in rank.calls]),
            clocks.clock[[rank.rank] * len(rank.calls)],
        )
        for rank in ranks
    ]
    assert np.array_equal(ends, same)
    assert float(np.abs(np.array(ends) - ends[0]).max()) < 500_000
    assert clocks.uncertainty_ns < 500_000
    told = [note for note in judge_ranks(job(ranks)).notes if " was set " in note]
    assert len(told) == sum(bool(one.jumps_ns) for one in clocks.hosts)
    assert all("while it ran, by " in note for note in told)


def test_a_few_collectives_that_are_wrong_spoil_no_clock():
    ranks = made(2)
    for rank in ranks:
        rank.calls = [
            replace(call, start=call.start + 9_000_000, end=call.end + 9_000_000)
            if rank.host == "node1" and call.seq in {100, 500}
            else call
            for call in rank.calls
        ]
    clocks = clocks_of(job(ranks))
    for error, told in held(clocks, ranks, 30):
        assert told.state != "not calibrated"
        assert error <= told.typical_ns


def test_hosts_that_share_nothing_are_joined_by_those_between():
    ranks = made(4, hosts=4, a_host=1, steps=60)
    pairs = [Group(f"{a}", "", (a, a + 1)) for a in range(3)]
    for rank in ranks:
        calls = []
        for call in rank.calls:
            mine = [group for group in pairs if rank.rank in group.ranks]
            group = pairs[call.seq % 3]
            if group in mine:
                calls.append(replace(call, group=group, seq=call.seq // 3))
        rank.calls = calls
    clocks = clocks_of(job(ranks))
    assert clocks.unjoined == ()
    for error, told in held(clocks, ranks, 6):
        assert error <= told.typical_ns
    # What is certain of one adds up over those on the way to it.
    ways = sorted(one.certain_ns for one in clocks.hosts)
    assert ways[0] == 0
    assert ways[3] > 1.5 * ways[1]


def test_two_ways_to_a_clock_that_do_not_agree_are_told():
    ranks = made(4, hosts=4, a_host=1, steps=90)
    pairs = [Group(f"{a}", "", tuple(sorted((a, (a + 1) % 4)))) for a in range(4)]

    def of_pair(late):
        """Return what leaves of each collective a pair, of which one may see the end too late."""

        def moved(rank, call):
            group = pairs[call.seq % 4]
            if rank.rank not in group.ranks:
                return None
            more = late if (group.name, rank.rank) == ("2", 3) else 0
            return replace(call, group=group, seq=call.seq // 4, end=call.end + more)

        return moved

    right = clocks_of(job(with_calls(made(4, hosts=4, a_host=1, steps=90), of_pair(0))))
    assert [one.circle_ns for one in right.hosts] == [0] * 4
    wrong = clocks_of(job(with_calls(ranks, of_pair(900_000))))
    apart = [one for one in wrong.hosts if one.circle_ns]
    assert apart
    assert all(one.typical_ns > 500_000 for one in apart)
    notes = judge_ranks(job(ranks)).notes
    assert sum("differs by" in note and "by another way" in note for note in notes) == len(apart)


def test_why_a_clock_is_not_known_is_told_in_words():
    def host(reason, **more):
        return ClockOfHost("a", "a", "not calibrated", reason=reason, **more)

    assert host("few in common", shared=7).told() == "7 collectives in common, 8 are needed"
    assert host("none in common").told() == "no collective in common with another host"
    assert host("enqueued").told() == "its collectives on a GPU were only seen to be enqueued"
    assert (
        host("contradiction", contradiction_ns=12_000).told()
        == "the bounds contradict each other by 12 us (a clock jumped)"
    )
    bounded = ClockOfHost("a", "b", "bounded", certain_ns=300_000)
    assert bounded.told() == "within 300 us"
    clocks = Clocks((bounded, host("enqueued")), (), np.zeros(0), np.zeros(0))
    assert clocks.beyond(400_000) == ("a: its collectives on a GPU were only seen to be enqueued",)
    assert clocks.beyond(200_000)[0] == "b: within 300 us"


@pytest.mark.parametrize("drift", [0.0, 20e-6, -20e-6])
def test_messages_alone_bound_how_far_clocks_are_apart(drift):
    steps = 600 if drift else 20
    ranks = [
        Rank(0, host="node0", steps=range(steps)),
        Rank(1, host="node1", offset=1_500_000_000, drift=drift, steps=range(steps)),
    ]
    group = Group("0", "", (0, 1))
    for step in range(steps):
        for number, (one, other) in enumerate(((0, 1), (1, 0))):
            at = step * STEP + number * 20_000_000
            said = {"seq": step, "tag": 0, "step": step}
            ranks[one].calls.append(Call("send", group, at, at + 10, peer=other, **said))
            ranks[other].calls.append(
                Call("receive", group, at - 5_000_000, at + 300_000, peer=one, **said)
            )
    clocks = clocks_of(job(ranks))
    told = clocks.hosts[1]
    assert told.state == "bounded"
    assert told.certain_ns == pytest.approx(300_000, abs=40_000)
    assert clocks.unjoined == ()
    assert clocks.uncertainty_ns == told.certain_ns
    for error, host in held(clocks, ranks, steps / 10):
        assert error <= host.certain_ns


def test_files_of_one_boot_come_together_exactly():
    # The wall clock was set by a second between the starts of the two.
    ranks = made(1, hosts=1, a_host=2, steps=20)
    for rank, constant in zip(ranks, (5_000_000_000, 6_000_000_000), strict=True):
        rank.offset, rank.drift = constant, 0.0
        rank.clock_offset_ns = constant
    clocks = clocks_of(job(ranks))
    assert clocks.uncertainty_ns == 0
    first, second = (clocks.corrected(rank.rank, clocked(rank, [7])) for rank in ranks)
    assert first.tolist() == second.tolist()
    matched = next(iter(Matching(job(ranks).ranks).take(next(job(ranks).blocks()))))
    assert len(matched.first) == 60
    assert matched.unmatched.broken == 0


def test_a_program_without_ranks_and_steps_has_no_clocks_and_no_verdict(tmp_path: Path) -> None:
    lines = TraceLines()
    for at in range(3):
        lines.span("forward", "compute", 1_000_000 + at * 1_000, 500)
    lines.write(tmp_path / "a-h-100.pfw")
    told = ranks(tmp_path)
    assert (told.verdict, told.findings, told.clocks.hosts) == ("abstained", (), 0)
