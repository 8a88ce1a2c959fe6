"""Calls of ranks that belong together, held against a matcher that is as plain as can be."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace

from made_calls import STEP, Call, Rank, job

from dftrace_ai.analysis.ranks.matching import Matching, in_order, meetings_in
from dftrace_ai.analysis.ranks.model import Unmatched
from dftrace_ai.analysis.ranks.partials import UNTOLD, Group
from dftrace_ai.trace_format.names_and_phases import JOINT

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "bcast", "barrier")


def of_step(rank, step, at, **told):
    """Return a call that begins so many microseconds after the step, and takes 20."""
    start = step * STEP + at * 1_000
    took = told.pop("took", 20_000)
    return Call(start=start, end=start + took, step=step, **told)


def found(ranks):
    """Return which calls were matched, by rank and number among its calls, and what was not."""
    told = job(ranks)
    made = Matching(told.ranks)
    sets, unmatched = [], []
    for block in told.blocks():
        for matches in made.take(block):
            unmatched.append(matches.unmatched)
            starts = matches.calls.start_ns.tolist()
            ranks_ = matches.calls.rank.tolist()
            ends = [*matches.first[1:].tolist(), len(starts)] if len(matches.first) else []
            for first, end in zip(matches.first.tolist(), ends, strict=True):
                sets.append(
                    frozenset(
                        (told.ranks[ranks_[at]].place.rank, starts[at]) for at in range(first, end)
                    )
                )
    unmatched.append(made.rest())
    return sets, sums(unmatched)


def sums(parts):
    return Unmatched(*(sum(getattr(one, name) for one in parts) for name in vars(parts[0])))


def true_sets(ranks, keep=lambda truth: True):
    from made_calls import clocked

    sets = defaultdict(set)
    for rank in ranks:
        for call in rank.calls:
            if call.truth is not None and keep(call.truth):
                sets[call.truth].add((rank.rank, int(clocked(rank, [call.start])[0])))
    return sets


def plain(ranks):
    """Match by dictionaries, a group and a way after the other, as the page of formulas says."""
    from made_calls import clocked

    calls = []
    members = {}
    told = defaultdict(set)
    for rank in ranks:
        for call in rank.calls:
            if call.group is not None and call.group.ranks:
                told[call.group.name].add(tuple(sorted(call.group.ranks)))
    for rank in ranks:
        count = Counter()
        for call in sorted(rank.calls, key=lambda call: call.start):
            group = call.group
            who = tuple(sorted(group.ranks))
            if not who:
                mine = [some for some in told[group.name] if rank.rank in some]
                who = mine[0] if len(mine) == 1 else ()
            k = count[group.name, who, call.name, call.step, call.peer, call.tag]
            count[group.name, who, call.name, call.step, call.peer, call.tag] += 1
            calls.append(
                (rank.rank, int(clocked(rank, [call.start])[0]), (group.name, who), call, k)
            )
            members[group.name, who] = {one.rank for one in ranks} & set(who)
    matched_sets = []
    messages = [one for one in calls if one[3].name in {"send", "receive"}]
    for group in sorted({one[2] for one in calls}):
        mine = [
            one for one in calls
            if one[2] == group and one not in messages and one[0] in members[group]
        ]  # fmt: skip
        if len(members[group]) < 2:
            continue
        keys = {
            "seq": lambda one: one[3].seq,
            "nth": lambda one: (one[3].name, one[3].nth),
            "step": lambda one: (one[3].name, one[3].step, one[4]),
        }
        matched_sets += best_of(mine, keys, members[group])
        pairs = [
            one for one in messages
            if one[2] == group and one[3].peer in {rank.rank for rank in ranks}
        ]  # fmt: skip

        def pair(one):
            ends = (one[0], one[3].peer)
            return ends if one[3].name == "send" else ends[::-1]

        by = {
            "seq": lambda one: (pair(one), one[3].tag, one[3].seq),
            "step": lambda one: (pair(one), one[3].tag, one[3].step, one[4]),
        }
        matched_sets += best_of(pairs, by, None)
    return matched_sets


def best_of(calls, keys, members):
    best = None
    for way, key in keys.items():
        place = {"seq": "seq", "nth": "nth", "step": "step"}[way]
        if way == "step":
            some = [one for one in calls if one[3].step != UNTOLD]
        elif any(getattr(one[3], place) == UNTOLD for one in calls):
            continue
        else:
            some = calls
        sets = defaultdict(list)
        for one in some:
            sets[key(one)].append(one)
        kept, odd, wrong, count = [], 0, 0, 0
        for at, mine in sets.items():
            sizes = {one[3].bytes for one in mine}
            names = {one[3].name for one in mine}
            who = [one[0] for one in mine]
            want = 2 if members is None else len(members)
            if len(mine) < want:
                if between(at, mine, some, way, members, key):
                    odd += 1
                    count += 1
                continue
            count += 1
            name = next(iter(names))
            bad = len(mine) > want or len(set(who)) < len(who)
            if members is None:
                bad = len(mine) > want or len(names) < 2 or len(sizes) > 1
            elif len(names) > 1 or (len(sizes) > 1 and name in JOINT):
                bad = True
            elif name in JOINT and min(one[3].end for one in mine) < max(
                one[3].start for one in mine
            ):
                bad = True
            if bad:
                odd += 1
                wrong += 1
            else:
                kept.append(frozenset(one[:2] for one in mine))
        if not sets:
            continue
        whole = len(kept) + wrong
        if wrong > 0.05 * whole:
            kept = []
        share = odd / max(count, 1)
        if best is None or share < best[0]:
            best = (share, kept)
        if share <= 0.05:
            break
    return best[1] if best else []


def between(at, mine, calls, way, members, key):
    if way == "step":
        return 0 <= mine[0][3].step < 20
    label = at[:-1] if isinstance(at, tuple) else ()
    side = (lambda one: one[3].name) if members is None else (lambda one: one[0])
    places = defaultdict(list)
    for one in calls:
        other = key(one)
        if (other[:-1] if isinstance(other, tuple) else ()) == label:
            places[side(one)].append(getattr(one[3], way))
    here = getattr(mine[0][3], way)
    if len(places) < (2 if members is None else len(members)):
        return False
    return max(map(min, places.values())) <= here <= min(map(max, places.values()))


def made(seed):
    """Return some ranks of a run: groups, messages, and what may be wrong with them."""
    rng = random.Random(seed)
    world = rng.choice((2, 3, 4, 6, 8))
    ranks = [Rank(rank, host=f"node{rank // 2}") for rank in range(world)]
    groups = [Group("world", "default", tuple(range(world)))]
    half = world // 2
    if half:  # one name, other members
        groups += [Group("tp", "", tuple(range(half))), Group("tp", "", tuple(range(half, world)))]
    fault = rng.choice(("", "", "no group lines", "lost", "double", "mixed size", "mixed name"))
    shifted, counted = rng.random() < 0.4, rng.random() < 0.5
    seqs, nths = Counter(), Counter()
    number = 0
    for step in range(20):
        at = 0
        for _ in range(rng.randint(0, 5)):
            group = rng.choice(groups)
            name = rng.choice(NAMES)
            size = rng.choice((100, 1_000))
            number += 1
            at += rng.randint(200, 900)
            come = {rank: at + rng.randint(0, 90) for rank in group.ranks}
            end = max(come.values()) + rng.randint(5, 50)
            for rank in group.ranks:
                # gloo counts messages: by rank others
                seqs[group, rank] += 1 + (rng.randint(0, 2) if shifted else 0)
                call = of_step(
                    rank, step, come[rank], name=name, group=group, bytes=size,
                    took=(end - come[rank]) * 1_000, seq=seqs[group, rank],
                    nth=nths[group, rank, name] if counted else UNTOLD, truth=number,
                )  # fmt: skip
                nths[group, rank, name] += 1
                ranks[rank].calls.append(call)
        for _ in range(rng.randint(0, 2)):
            one, other = rng.sample(range(world), 2)
            tag = rng.choice((0, 7, 10**12))
            number += 1
            at += rng.randint(200, 900)
            seq = seqs[one, other, tag]
            seqs[one, other, tag] += 1
            for rank, peer, name in ((one, other, "send"), (other, one, "receive")):
                call = of_step(
                    rank, step, at + rng.randint(0, 50), name=name, group=groups[0], peer=peer,
                    tag=tag, seq=seq, took=100_000, truth=number,
                )  # fmt: skip
                ranks[rank].calls.append(call)
    for rank in ranks:
        spoil(rank, fault, rng)
    if rng.random() < 0.3 and world > 2:  # no trace of one
        del ranks[rng.randrange(world)]
    return ranks, world


def spoil(rank, fault, rng):
    if fault == "no group lines" and rank.rank % 2:
        rank.calls = [
            replace(call, group=call.group._replace(ranks=(), description=""))
            for call in rank.calls
        ]
    elif fault and rank.calls and rank.rank == 1:
        at = rng.randrange(len(rank.calls))
        one = rank.calls[at]
        if fault == "lost":
            del rank.calls[at]
        elif fault == "double":
            rank.calls.append(replace(one, start=one.start + 1, truth=None))
        elif fault == "mixed size":
            rank.calls[at] = replace(one, bytes=77)
        elif fault == "mixed name" and one.peer == UNTOLD:
            rank.calls[at] = replace(one, name="all_to_all")


def test_matches_are_those_of_a_plain_matcher():
    some = 0
    for seed in range(300):
        ranks, _ = made(seed)
        mine, _ = found(ranks)
        theirs = plain(ranks)
        assert len(mine) == len(set(mine)), seed
        assert set(mine) == set(theirs), seed
        some += len(mine)
    assert some > 5_000


def test_who_goes_through_chunks_gets_the_same_meetings():
    for seed in range(20):
        ranks, _ = made(seed)
        told = job(ranks)
        block = told.block(0)
        meetings = meetings_in(block, in_order(told.ranks))
        sets = defaultdict(set)
        for at, one in enumerate(told.ranks):
            calls = one.chunks[0].calls
            met = meetings[slice(*block.tables.calls.edges[at : at + 2])]
            assert len(met) == len(calls.name)
            for number, start in zip(met.tolist(), calls.start_ns.tolist(), strict=True):
                if number != UNTOLD:
                    sets[number].add((one.place.rank, start))
        assert set(map(frozenset, sets.values())) == set(found(ranks)[0]), seed


def test_who_calls_in_the_next_block_is_waited_for_once():
    # Rank 1 is a step behind: what rank 0 calls in the last step of a block, it does in the next.
    ranks = [Rank(rank, steps=range(520)) for rank in range(2)]
    group = Group("0", "", (0, 1))
    for step in range(519):
        for rank in ranks:
            one = of_step(rank.rank, step + rank.rank, 10, name="all_reduce", group=group,
                          seq=step, took=STEP // 1_000 * 1_200)  # fmt: skip
            rank.calls.append(one)
    sets, unmatched = found(ranks)
    assert len(sets) == 519
    assert unmatched == Unmatched()
    # What rank 1 never calls is counted when the block after it has been looked at, and once.
    ranks[1].calls = [call for call in ranks[1].calls if call.seq != 100]
    sets, unmatched = found(ranks)
    assert len(sets) == 518
    assert unmatched == Unmatched(collectives=1)
