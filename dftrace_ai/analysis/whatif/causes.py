"""What makes a run slower than even work would: who, what kind of work, and why.

Apart from `judging`, which says whether a job can be judged at all.

The shares are those of "Understanding Stragglers in Large Model Training Using What-if Analysis"
(Lin et al., 2025), with the middle rank of a stage as its level, so that one slow rank does not
make its stage slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.model import Excess, is_in_one_span
from dftrace_ai.analysis.ranks.own_work import excess_of as peers_excess
from dftrace_ai.analysis.ranks.own_work import low_median, onset_of, single_steps
from dftrace_ai.analysis.ranks.partials import GARBAGE
from dftrace_ai.analysis.whatif.graph import ALONE
from dftrace_ai.analysis.whatif.model import Cause, CauseKind, Figures, Shares
from dftrace_ai.analysis.whatif.work import low_medians

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.whatif.runs import Run
    from dftrace_ai.analysis.whatif.work import Work

MANY_RANKS: Final = 256
"""Of more, only those with the greatest excess are worked out one by one."""
OF_FEW: Final = 0.1
"""Of the few those are to blame that alone recover so much."""
ALIKE: Final = 0.8
"""Forward and backward go together where the data of micro-batches differ."""
PAIRS: Final = 11
LINKS_TRIED: Final = 8
OF_LINKS: Final = 0.5
"""Of the slowdown that one link makes alone, to be named."""
RANKS_NAMED: Final = 8
MOST_OF_SERIAL: Final = 1.2
"""So many times as fast a run of even work would be without the rank that has most of it."""
SOMEBODYS: Final = frozenset({"worker", "stage"})
LEADS: Final = 2
"""By so many times as much a run would win by one rank as by the next."""
MOST_OF_IT: Final = 0.5
"""Of what ranks do longer, for one span to be told alone."""
IN_BURSTS: Final = 1 / 3
"""Of the mean over steps the median is less where ranks are late in few of them."""
FLOOR: Final = 0.03
"""Of a step, as ranks has it: of who is late by less as a rule it is told that he is in bursts."""
CALLED: Final = 3
"""So many kinds of communication are named."""


class Changes(NamedTuple):
    """What operations take with each change alone, as `Shares` has them."""

    few: Integers
    rank: Integers
    stage: Integers
    within: Integers
    comm: Integers
    both: Integers


def changes_of(work: Work, few_ranks: Integers) -> Changes:
    """Return what operations take when one thing is made even."""
    levels = work.levels()
    to_stage = work.own * _ratio(work.by_level(levels.stage), work.by_level(levels.mean))
    slow = np.isin(work.rank, few_ranks)
    stage = work.own * _ratio(work.by_level(levels.job), work.by_level(levels.stage))
    is_comm = work.operations.is_comm
    within = work.scaled(work.by_level(levels.mean))
    return Changes(
        few=work.scaled(np.where(slow, to_stage, work.own)),
        rank=work.scaled(to_stage),
        stage=work.scaled(stage),
        within=within,
        comm=np.where(is_comm, work.ideal, work.times),
        both=np.where(is_comm, work.ideal, within),
    )


def excess_of(work: Work) -> Integers:
    """Return how much longer each rank works than the middle one of its stage, all in all."""
    levels = work.levels()
    excess = (levels.mean - levels.stage) * levels.cells
    found: Integers = np.where(np.isnan(excess), 0.0, excess).sum(0)
    return found


def few_of(excess: Integers) -> Integers:
    """Return the indexes of the few ranks with the greatest excess, that first."""
    count = max(1, -(-3 * len(excess) // 100))
    return np.argsort(-excess, kind="stable")[:count]


def shares_of(replay_ns: int, ideal_ns: int, with_change_ns: list[int]) -> Shares:
    """Return what each change recovers; with times in the order of `Shares`."""
    lost = replay_ns - ideal_ns
    if lost <= 0:
        return Shares(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Shares(*((replay_ns - time) / lost for time in with_change_ns))


def cause_of(
    run: Run,
    work: Work,
    shares: Shares,
    excess: Integers,
    by_rank: Mapping[int, Figures],
    limits: Mapping[str, float],
    slowdown: float,
) -> Cause:
    """Return what the slowdown comes from, without what is to be said of communication."""
    few_ranks = few_of(excess)
    if slowdown < limits["slowdown"]:
        # Of ranks that work one after the other one may have most to do; shared out it is as much.
        most = {number: figures.without or 1.0 for number, figures in by_rank.items()}
        first = max(most, key=lambda one: (most[one], -one), default=None)
        much = first is not None and most[first] >= MOST_OF_SERIAL
        return Cause("none", ranks=(first,) if first is not None and much else ())
    candidates: dict[CauseKind, float] = {
        "worker": shares.few,
        "stage": shares.stage,
        "pauses": shares.within,
        "communication": shares.comm,
    }
    kind = max(candidates, key=lambda one: candidates[one])
    share = candidates[kind]
    if share < limits["share"] and not (kind in SOMEBODYS and _is_alone(by_rank, slowdown)):
        return _of_many(run, work, shares, excess, limits["share"])
    places = run.gathered.places
    of_stage = np.bincount(work.stage)
    if kind in ("worker", "stage") and len(of_stage) > 1 and of_stage.min() < 2:
        stages = _slow_stages(run, work) if kind == "stage" else ()
        guilty = tuple(place.rank for place in places if place.stage in stages)
        guilty = guilty or _guilty(run, few_ranks, by_rank)
        cause = Cause("stage or worker", share, ranks=guilty, stages=stages)
        cause = _with_excess(run, work, cause)
        # A machine is slow in all that it does.
        return replace(cause, kind="stage") if stages and is_in_one_span(cause.excess) else cause
    if kind == "stage":
        return Cause("stage", share, stages=_slow_stages(run, work))
    if kind == "worker":
        return _of_ranks(run, work, share, _guilty(run, few_ranks, by_rank))
    return _of_turns(run, work, share) if kind == "pauses" else Cause(kind, share)


def _is_alone(by_rank: Mapping[int, Figures], slowdown: float) -> bool:
    """Return whether one rank has so much more work that the mean of few ranks is much of that."""
    first, second = sorted((figures.without or 1.0 for figures in by_rank.values()), reverse=True)[
        :2
    ]
    return first >= slowdown and first - 1 >= LEADS * (second - 1)


def _of_ranks(run: Run, work: Work, share: float, ranks: tuple[int, ...]) -> Cause:
    """Return that ranks are to blame, or the hosts that they are."""
    places = run.gathered.places
    hosts = sorted({place.host for place in places if place.rank in ranks})
    whole = {place.rank for place in places if place.host in hosts}
    several = len({place.host for place in places}) > 1 and len(ranks) > 1
    cause = Cause("worker", share, ranks=ranks)
    if several and whole == set(ranks):
        cause = Cause("node", share, ranks=ranks, hosts=tuple(hosts))
    return _with_excess(run, work, cause)


def _of_turns(run: Run, work: Work, share: float) -> Cause:
    """Return what it is that ranks take now more and now less time."""
    if _is_of_garbage(run, work):
        return Cause("garbage collection", share)
    correlation = _correlation(work)
    alike = correlation is not None and correlation >= ALIKE
    return Cause("data" if alike else "pauses", share, correlation=correlation)


def _of_many(run: Run, work: Work, shares: Shares, excess: Integers, least: float) -> Cause:
    """Return what comes from more than few ranks: that half of them are late, or turns."""
    if shares.rank >= max(least, shares.both):
        late = np.flatnonzero(excess >= MOST_OF_IT * excess.max())
        ranks = tuple(run.gathered.places[at].rank for at in late.tolist())
        found = _of_ranks(run, work, shares.rank, ranks)
        # Of two hosts one is half of the ranks.
        if len(late) <= (len(excess) - 1) // 2 or len(found.hosts) == 1:
            return found
        return _with_excess(run, work, Cause("split", shares.rank, ranks=ranks))
    if shares.both >= least:
        return Cause("jitter", shares.both)
    return Cause("several", max(shares.few, shares.stage, shares.within, shares.comm))


def _garbage(run: Run, ranks: int) -> Integers:
    """Return how long garbage was collected, ``(steps, ranks)``."""
    one = run.gathered
    at = one.step * ranks + one.chain_rank[one.steps.chain]
    steps = len(one.numbers)
    return np.bincount(at, one.gc_ns, steps * ranks).reshape(steps, ranks)


def _by_step(work: Work, steps: int) -> Integers:
    """Return how long ranks work, ``(steps, ranks)``."""
    at = work.operations.step[work.first] * work.ranks + work.rank
    return np.bincount(at, work.own, steps * work.ranks).reshape(steps, work.ranks)


class Once(NamedTuple):
    """Steps that a rank made far longer than all others are."""

    steps: tuple[int, ...]
    rank: int


def late_once(run: Run, work: Work) -> Once | None:
    """Return a step or two that a rank made far longer than all others are; None without any."""
    counted, time_ns = run.measured_steps()
    own = np.rint(_by_step(work, len(run.gathered.numbers))[counted]).astype(np.int64).T
    one_each = np.bincount(work.stage).min() < 2
    excess = peers_excess(own, np.zeros_like(work.stage) if one_each else work.stage)
    last = excess.argmax(0)
    its = single_steps(time_ns, excess.max(0), last, lambda _: True)
    if not its.any():
        return None
    numbers = run.gathered.numbers[counted[its]].tolist()
    return Once(tuple(numbers), run.gathered.places[int(last[its][0])].rank)


def _is_of_garbage(run: Run, work: Work) -> bool:
    """Return whether steps of a rank are longer than its others by collecting garbage."""
    garbage = _garbage(run, work.ranks)
    own = _by_step(work, len(garbage))
    more = np.maximum(own - own.mean(0), 0)
    collected = np.clip(garbage - garbage.mean(0), 0, more)
    return bool(collected.sum() >= MOST_OF_IT * max(more.sum(), 1))


def _with_excess(run: Run, work: Work, cause: Cause) -> Cause:
    """Return a cause with what its ranks do longer than the others, and when.

    The others are those of their stages, where there are any.
    """
    one = work.operations
    slow = np.isin(np.array(one.ranks), cause.ranks)
    mine = np.flatnonzero(slow[work.rank])
    levels = work.levels()
    if np.bincount(work.stage).min() > 1:
        usual = work.by_level(levels.stage)[mine]
    else:
        usual = low_medians(levels.mean)[work.kind[mine]]
    more = work.own[mine] - usual
    step = one.step[work.first[mine]]
    steps = len(one.stretch_of)
    # A pause that the others have as well is none of these ranks.
    others = _by_step(work, steps)[:, ~slow]
    shared = low_median(others - others.mean(0), 1) * len(cause.ranks) if others.size else 0
    by_step = np.rint(np.bincount(step, more, steps) - shared).astype(np.int64)
    by_kind = np.bincount(one.kind[work.first[mine]], more, len(one.kinds))
    usual_of = np.bincount(one.kind[work.first[mine]], usual, len(one.kinds))
    longer = [at for at in np.argsort(-by_kind, kind="stable").tolist() if by_kind[at] > 0]
    total = by_kind[longer].sum()
    told = [
        Excess(
            one.kinds[at],
            round(by_kind[at] / (steps * len(cause.ranks))),
            round(float(by_kind[at] / total), 6),
            round(float(usual_of[at] / max(usual_of.sum(), 1.0)), 6),
        )
        for at in longer[:2]
    ]
    if told and told[0].part >= MOST_OF_IT:
        del told[1:]
    garbage = _garbage(run, work.ranks)
    collected = garbage[:, slow].sum() - len(cause.ranks) * low_median(garbage.sum(0))
    if collected >= MOST_OF_IT * max(total, 1):
        each = round(collected / (steps * len(cause.ranks)))
        told = [Excess(GARBAGE, each, round(min(float(collected / total), 1.0), 6))]
    first = onset_of(by_step)
    usual_ns = float(np.median(by_step)) / max(len(cause.ranks), 1)
    seldom = usual_ns < FLOOR * run.measured_ns / run.counted
    in_bursts = not first and (seldom or np.median(by_step) < IN_BURSTS * by_step.mean())
    is_once = by_step.max() >= MOST_OF_IT * np.maximum(by_step, 0).sum()
    return replace(
        cause,
        since=int(run.gathered.numbers[first]) if first else None,
        excess=tuple(told),
        in_bursts=bool(in_bursts),
        once=int(run.gathered.numbers[by_step.argmax()]) if in_bursts and is_once else None,
    )


def dearest_links(run: Run, work: Work, ideal_ns: int, slowdown: float) -> tuple[str, ...]:
    """Return the pair or group of ranks whose communication alone makes most of a slowdown."""
    one = run.operations
    met = np.flatnonzero(one.is_comm)
    # In a group of one a rank meets nobody.
    meeting = np.where(one.meeting == ALONE, len(one) + np.arange(len(one)), one.meeting)
    met = met[np.lexsort((one.rank[met], meeting[met]))]
    first = np.flatnonzero(np.diff(meeting[met], prepend=ALONE))
    size = np.diff(np.append(first, len(met)))
    # Meetings of the same ranks are of one link, in both directions.
    members = [tuple(ranks.tolist()) for ranks in np.split(one.rank[met], first[1:])]
    known: dict[tuple[int, ...], int] = {}
    link = np.array([known.setdefault(ranks, len(known)) for ranks in members])
    of = np.repeat(link, size)
    more = (work.times - work.ideal)[met]
    worst = np.argsort(-np.bincount(of, more, len(known)), kind="stable")[:LINKS_TRIED].tolist()
    masks = [np.isin(np.arange(len(one)), met[of == at]) for at in worst]
    times = run.times_ns(np.where(mask, work.times, work.ideal) for mask in masks)
    dearest = max(range(len(worst)), key=lambda at: times[at])
    if times[dearest] / ideal_ns - 1 < OF_LINKS * (slowdown - 1):
        return ()
    ranks = list(known)[worst[dearest]]
    mine = of == worst[dearest]
    always = MOST_OF_IT * more[mine].mean() <= np.median(more[mine])
    if len(set(ranks)) == len(one.ranks) or not always:
        return ()  # that is no link among others, or slow now and then
    kind = int(np.bincount(one.kind[met[mine]], more[mine]).argmax())
    some = ", ".join(str(one.ranks[at]) for at in ranks[:RANKS_NAMED])
    return (f"{one.kinds[kind]} of ranks {some}{', ...' if len(ranks) > RANKS_NAMED else ''}",)


def _ratio(wanted: Integers, known: Integers) -> Integers:
    return np.where(known > 0, wanted / np.maximum(known, 1), 1.0)


def _guilty(run: Run, few_ranks: Integers, by_rank: Mapping[int, Figures]) -> tuple[int, ...]:
    numbers = [run.gathered.places[at].rank for at in few_ranks.tolist()]
    guilty = [number for number in numbers if (by_rank[number].recovered or 0.0) >= OF_FEW]
    return tuple(sorted(guilty or numbers[:1]))


def _slow_stages(run: Run, work: Work) -> tuple[int, ...]:
    """Return stages whose work is more than the mean of all; the worst first."""
    levels = work.levels()
    per_step = levels.cells / max(len(work.operations.stretch_of), 1)
    amount = np.where(np.isnan(levels.stage), 0.0, levels.stage * per_step).sum(0)
    stages = np.unique(work.stage)
    of_stage = np.array([np.median(amount[work.stage == stage]) for stage in stages])
    above = of_stage > of_stage.mean()
    order = np.argsort(-of_stage, kind="stable")
    numbers = sorted({place.stage for place in run.gathered.places if place.stage is not None})
    return tuple(numbers[stages[at]] for at in order.tolist() if above[at])


def _correlation(work: Work) -> float | None:
    """Return how forward and backward of one micro-batch go together, the median over ranks."""
    one = work.operations
    first = work.first
    key = (one.rank[first] * len(one.stretch_of) + one.step[first]) * (
        int(one.nth.max(initial=0)) + 1
    ) + one.nth[first]
    _, at = np.unique(key, return_inverse=True)
    at = at.reshape(-1)
    count = int(at.max(initial=-1)) + 1
    both = []
    for word in ("forward", "backward"):
        named = np.array([word in name.rpartition("/")[2] for name in one.kinds])[one.kind[first]]
        total = np.bincount(at[named], work.own[named], count)
        both.append((total, np.bincount(at[named], minlength=count) > 0))
    rank = np.zeros(count, np.int64)
    rank[at] = work.rank
    there = both[0][1] & both[1][1]
    found = []
    for number in range(work.ranks):
        mine = there & (rank == number)
        forward, backward = both[0][0][mine], both[1][0][mine]
        if len(forward) >= PAIRS and forward.std() > 0 and backward.std() > 0:
            found.append(float(np.corrcoef(forward, backward)[0, 1]))
    return float(np.median(found)) if found else None


class Subject(NamedTuple):
    """Somebody, or some work, that a run is worked out with or without."""

    dimension: str  # "rank", "host", "kind", or one of the layout
    value: int | str
    ranks: Integers | None  # a mask; None for a kind
    operations: Integers  # a mask
    slowdown_only: bool


@dataclass
class AllFigures:
    """Figures by dimension and value."""

    by: dict[str, dict[int | str, Figures]] = field(default_factory=dict)

    def add(self, subject: Subject, figures: Figures) -> None:
        """Keep the figures of one."""
        self.by.setdefault(subject.dimension, {})[subject.value] = figures

    def numbered(self, dimension: str) -> dict[int, Figures]:
        """Return the figures of a dimension with numbers, in their order."""
        found = self.by.get(dimension, {})
        return {int(value): found[value] for value in sorted(found, key=int)}

    def named(self, dimension: str) -> dict[str, Figures]:
        """Return the figures of a dimension with names, the slowest first."""
        found = sorted(self.by.get(dimension, {}).items(), key=lambda one: str(one[0]))
        found.sort(key=lambda one: -one[1].slowdown)
        return {str(value): figures for value, figures in found}


def figures_of(
    run: Run,
    work: Work,
    ideal_ns: int,
    ranks: Integers,
    progress: Callable[[int, int], None] | None,
) -> AllFigures:
    """Work out the run with each rank, host, coordinate and kind of work alone, and without it."""
    subjects = list(_subjects(run, ranks))
    count = sum(1 if one.slowdown_only else 2 + (one.ranks is not None) for one in subjects)
    if progress is not None:
        progress(0, count)
    asked: list[tuple[int, str]] = []

    def variants() -> Iterator[Integers]:
        for at, subject in enumerate(subjects):
            mine = subject.operations
            asked.append((at, "slowdown"))
            yield np.where(mine, work.times, work.ideal)
            if subject.slowdown_only:
                continue
            asked.append((at, "recovered"))
            yield np.where(mine, work.ideal, work.times)
            if subject.ranks is not None:
                others = without(work, subject.ranks, subject.dimension)
                if others is not None:
                    asked.append((at, "without"))
                    yield others

    told = None if progress is None else lambda done: progress(min(done, count), count)
    times = run.times_ns(variants(), told)
    if progress is not None:
        progress(count, count)
    lost = run.replay_ns - ideal_ns
    figures: list[dict[str, float]] = [{} for _ in subjects]
    for (at, what), time in zip(asked, times, strict=True):
        figures[at][what] = {
            "slowdown": time / max(ideal_ns, 1),
            "recovered": (run.replay_ns - time) / lost if lost > 0 else 0.0,
            "without": run.replay_ns / max(time, 1),
        }[what]
    found = AllFigures()
    for subject, values in zip(subjects, figures, strict=True):
        found.add(
            subject,
            Figures(values["slowdown"], values.get("recovered"), values.get("without")),
        )
    _estimate_others(run, found)
    return found


def without(work: Work, out: Integers, dimension: str = "") -> Integers | None:
    """Return what operations take when some ranks work no longer than comparable ones."""
    # Of the same stage, if every stage has some that are not meant and two ranks at least.
    of_stage = np.bincount(work.stage)
    left = np.bincount(work.stage[~out], minlength=len(of_stage))
    by_stage = dimension != "pp" and of_stage.min() >= 2 and bool((left > 0).all())
    return work.without(out, by_stage=by_stage)


def _subjects(run: Run, ranks: Integers) -> Iterator[Subject]:
    places = run.gathered.places
    one = run.operations
    for at in ranks.tolist():
        mask = np.arange(len(places)) == at
        yield Subject("rank", places[at].rank, mask, one.rank == at, False)
    many = len(places) > MANY_RANKS
    hosts = sorted({place.host for place in places})
    if len(hosts) > 1:
        for host in hosts:
            mask = np.array([place.host == host for place in places])
            worst = not many or bool(mask[ranks].any())
            yield Subject("host", host, mask, mask[one.rank], not worst)
    layouts = [dict(place.layout) for place in places]
    for dimension in dict.fromkeys(name for layout in layouts for name in layout):
        values = sorted({layout[dimension] for layout in layouts if dimension in layout})
        # Where each coordinate is a rank of its own, ranks say it.
        if 1 < len(values) < len(places) or (dimension == "pp" and len(values) > 1):
            for value in values:
                mask = np.array([layout.get(dimension) == value for layout in layouts])
                yield Subject(dimension, value, mask, mask[one.rank], False)
    for number, kind in enumerate(one.kinds):
        mask = one.kind == number
        if mask.any():
            yield Subject("kind", kind, None, mask, False)


def _estimate_others(run: Run, found: AllFigures) -> None:
    """Give ranks that were not worked out the least slowdown of what they are in."""
    places = run.gathered.places
    known = found.by.get("rank", {})
    for place in places:
        if place.rank in known:
            continue
        parts: list[tuple[str, int | str]] = [("host", place.host), *place.layout]
        there = [found.by.get(dimension, {}).get(value) for dimension, value in parts]
        around = [figures.slowdown for figures in there if figures is not None]
        known[place.rank] = Figures(min(around, default=1.0))
    found.by["rank"] = known
