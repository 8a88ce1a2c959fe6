"""Own work of all ranks in the steps that are judged: how much longer each took than the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple, overload

import numpy as np

from dftrace_ai.analysis.ranks.model import bubble_share
from dftrace_ai.analysis.ranks.partials import NOT_ANNOTATED, UNTOLD, SpanRows
from dftrace_ai.analysis.robust_statistics import (
    MOST_BATCHES,
    STEPS_A_BATCH,
    Share,
    batch_medians,
    change_of,
    share_of,
)
from dftrace_ai.analysis.steps.measuring import steady_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dftrace_ai.analysis.ranks.blocks import Block
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.partials import Place
    from dftrace_ai.analysis.reading.event_columns import Integers

# What is made of all steps is made of so many at a time, and of so many ranks.
STEPS_AT_ONCE: Final = 256
RANKS_AT_ONCE: Final = 64
# Scaled so that it is the standard deviation of what is spread normally.
NORMAL_SCALE: Final = 1.4826

# Two levels: the first is so much lower, and they fit so much better than one.
LEVELS_APART: Final = 1 / 3
FITS_BETTER: Final = 0.7
BATCHES_OF_LEVELS: Final = 200
# A step that is so many scales and twice the usual one longer is told once; so many are pauses.
SCALES_OF_ONCE: Final = 8
FEWEST_PAUSES: Final = 3
MOST_OF_ONCE: Final = 0.5
# Who is late by so much more or less from step to step, on a host with fewer processors than ranks,
# is whom that lets wait: it may be another one the next time.
VARIES: Final = 0.5
# Ranks are in the same steps together where the longest take so little more than those of a rank.
IN_STEP: Final = 1.05
# Of the time, at most: whoever is late does something beside that.
MOST_LOST: Final = 0.9999


@overload
def low_median(values: Integers, axis: None = None) -> int: ...
@overload
def low_median(values: Integers, axis: int) -> Integers: ...
def low_median(values: Integers, axis: int | None = None) -> int | Integers:
    """Return the median, of an even count the lower: of two ranks the slow one is far from it."""
    if axis is None:
        kth = (values.size - 1) // 2
        return int(np.partition(values, kth, axis=None)[kth])
    kth = (values.shape[axis] - 1) // 2
    middle: Integers = np.take(np.partition(values, kth, axis=axis), kth, axis=axis)
    return middle


def lower_scale(values: Integers) -> float:
    """Return how far values usually lie below their middle: half of them may be slow alike."""
    middle = low_median(values)
    return NORMAL_SCALE * low_median(middle - values[values <= middle])


def is_varying(excess: Integers) -> bool:
    """Return whether who is late is so by much more or less from step to step."""
    return lower_scale(excess) > VARIES * low_median(excess)


def part_of(values: Integers, chosen: Integers) -> float:
    """Return which part of all values those chosen by a mask have together."""
    return int(values[chosen].sum()) / max(int(values.sum()), 1)


class NamedWork(NamedTuple):
    """Own work by name in some of the steps that are judged."""

    steps: slice  # which these are
    names: tuple[str, ...]
    own_ns: Integers  # (names, ranks, steps)
    wait_ns: Integers  # (ranks, steps)
    gc_ns: Integers  # (ranks, steps), of the own work


@dataclass(frozen=True, repr=False)
class OwnWork:
    """What ranks did themselves in the steady steps that all have."""

    job: RanksOfJob
    common: int  # so many steps all ranks have
    numbers: Integers  # what those that are judged are called
    own_ns: Integers  # own work, ``(ranks, steps)``
    # How much more that is than the low median of comparable ranks in that step.
    excess_ns: Integers
    time_ns: Integers  # the longest step over ranks, by step
    in_steps: float  # the part of the time from the first step to the last that lies in steps
    # By so many times that is less than the longest steps are together: others wait in their next
    # step for what a rank does at the end of its own.
    ahead: float
    waited_ns: Integers  # what ranks together waited more than the one that waited least, by step
    # Of each rank its stage; none where not all tell theirs, or all are of one.
    stages: Integers | None
    # Ranks with the same label are comparable: those of a stage where every stage has several, else
    # all.
    peers: Integers

    @classmethod
    def of(cls, job: RanksOfJob) -> OwnWork:
        """Add up own work, a block of steps at a time; of one with 64 ranks 10^4 steps are 5 MB."""
        blocks = list(map(_Totals.of, job.blocks("steps"))) or [_Totals.of_none(len(job.ranks))]
        numbers, time, waited = (
            np.concatenate(parts)
            for parts in zip(
                *((one.numbers, one.time_ns, one.waited_ns) for one in blocks), strict=True
            )
        )
        of_rank = int(np.sum([one.of_rank_ns for one in blocks], axis=0).max(initial=0))
        steady = _steady(job, time)
        own = np.empty((len(job.ranks), int(steady.sum())), np.int64)
        # Each is let go as soon as it is copied: together they are as large as this.
        blocks.reverse()
        at = common = 0
        while blocks:
            totals = blocks.pop()
            chosen = totals.own_ns[:, steady[common : common + len(totals.numbers)]]
            own[:, at : at + chosen.shape[1]] = chosen
            at += chosen.shape[1]
            common += len(totals.numbers)
        places = [rank.place for rank in job.ranks]
        stages = _stages(places)
        peers = np.zeros(len(places), np.int64)
        if stages is not None and np.unique(stages, return_counts=True)[1].min() >= 2:
            peers = stages
        return cls(
            job=job,
            common=common,
            numbers=numbers[steady],
            own_ns=own,
            excess_ns=excess_of(own, peers),
            time_ns=time[steady],
            in_steps=part_in_steps(job, time),
            ahead=_ahead(job, int(time.sum()), of_rank, numbers[steady]),
            waited_ns=waited[steady],
            stages=stages,
            peers=peers,
        )

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.job.ranks)

    def __len__(self) -> int:
        """How many steps are judged."""
        return len(self.numbers)

    @property
    def step_ns(self) -> int:
        """The usual length of a step."""
        return low_median(self.time_ns)

    def beside_all(self) -> OwnWork:
        """Return it with each rank beside all others, whatever their stages."""
        peers = np.zeros(self.ranks, np.int64)
        return replace(self, peers=peers, excess_ns=excess_of(self.own_ns, peers))

    def doing(self, own_ns: Integers) -> OwnWork:
        """Return it as if ranks worked so long, ``(ranks, steps)``, and others waited for that."""
        saved = self.own_ns.max(axis=0) - own_ns.max(axis=0)
        less = self.own_ns.sum(axis=0) - own_ns.sum(axis=0)
        return replace(
            self,
            own_ns=own_ns,
            excess_ns=excess_of(own_ns, self.peers),
            time_ns=self.time_ns - saved,
            waited_ns=np.maximum(self.waited_ns - saved * self.ranks + less, 0),
        )

    def usual_excess_ns(self, steps: slice = slice(None)) -> Integers:
        """Return the median over steps of how much longer each rank worked."""
        return np.concatenate(
            [low_median(rows[:, steps], 1) for rows in self._some_ranks(self.excess_ns)]
        )

    def noise_ns(self, steps: slice) -> float:
        """Return the usual error of these medians, by how much those of batches differ."""
        count = len(range(*steps.indices(len(self))))
        batches = min(MOST_BATCHES, max(count // STEPS_A_BATCH, 2))
        edges = np.linspace(0, count, batches + 1).astype(int)
        chosen = self.excess_ns[:, steps]
        medians = np.stack([low_median(chosen[:, a:b], 1) for a, b in pairwise(edges)])
        spread = np.sort(medians.astype(float).std(axis=0))
        return float(spread[(len(spread) - 1) // 2]) / sqrt(batches)

    @property
    def last(self) -> Integers:
        """The index of the rank with most work beyond that of comparable ones, by step."""
        return np.concatenate([part.argmax(axis=0) for part in self._some_steps(self.excess_ns)])

    @property
    def straggle_ns(self) -> Integers:
        """How much longer the last rank worked than the low median of comparable ones, by step."""
        most: Integers = self.excess_ns.max(axis=0)
        return most

    @property
    def spread_ns(self) -> float:
        """The standard deviation of how much longer ranks worked, over steps of ranks."""
        unit = max(self.step_ns // 4096, 1)
        total = squares = 0
        for part in self._some_steps(self.excess_ns):
            total += int((part // unit).sum())
            squares += int(((part // unit) ** 2).sum())
        count = self.excess_ns.size
        return unit * sqrt(squares * count - total * total) / count

    def cost_of(
        self, late: Integers, steps: Integers | slice = slice(None), beside: Integers | None = None
    ) -> Share:
        """Return what ranks, a mask, cost of the time, against the slowest of the others.

        Of those beside them it is what is left when they are no slower than these, and of the time
        that the steps take then.
        """
        chosen, time = self.own_ns[:, steps], self.time_ns[steps]
        if beside is not None and beside.any():
            time = time - chosen.max(axis=0)
            chosen, late = chosen[~beside], late[~beside]
            time = time + chosen.max(axis=0)
        without = chosen.max(axis=0, where=~late[:, None], initial=0)
        if (pipeline := self.job.pipeline) is None:
            return self._surely_lost(chosen.max(axis=0) - without, time)
        # Ranks of a pipeline are not in step: what one does less in a step it makes up for in the
        # next. Nor does it win what it waits for the others while it fills and drains.
        lost = chosen.max(axis=0, where=late[:, None], initial=0) - without
        least = without.sum() / (1 - bubble_share(*pipeline))
        most = max(int(time.sum()) - least, 0.0)
        if lost.sum() > most:
            lost = (lost * (most / lost.sum())).astype(np.int64)
        return self._surely_lost(lost if lost.sum() > 0 else np.zeros_like(lost), time)

    def _surely_lost(self, lost_ns: Integers, time: Integers) -> Share:
        """Return the share, no less sure for steps that are long by what all do in them."""
        rest = time - lost_ns
        alike = lost_ns + round(int(rest.sum()) / max(len(rest), 1))
        both = (share_of(lost_ns, time), share_of(lost_ns, alike))
        low, high = max(one.low for one in both), min(one.high for one in both)
        return Share(*map(self.of_time, (both[0].share, low, high)))

    def share_of(self, lost_ns: Integers, steps: Integers | slice = slice(None)) -> Share:
        """Return which part of the time steps lost; what lies between them counts as time."""
        found = share_of(lost_ns, self.time_ns[steps])
        return Share(*map(self.of_time, found))

    def of_time(self, share: float) -> float:
        """Return a share of the longest steps together as one of the time."""
        return min(self.in_steps * self.ahead * share, MOST_LOST)

    def others_wait_ns(self, late: Integers) -> Integers:
        """Return how long the one in the middle of all but some ranks, a mask, waits, by step."""
        waits: Integers = np.maximum(self.time_ns - levels_of(self.own_ns, late)[0], 0)
        return waits

    def others_wait_on_average_ns(self, late: Integers) -> int:
        """Return the same as a mean over steps."""
        mean = float(self.time_ns.mean()) / self.ahead
        return max(round(mean - float(levels_of(self.own_ns, late)[0].mean())), 0)

    def is_waited_for(self, steps: Integers | slice) -> bool:
        """Return whether others wait in some steps for who works longest in them.

        For what it does behind the last collective of a step they wait in the next one.
        """
        chosen = self.own_ns[:, steps]
        idle = int((chosen.max(axis=0) * self.ranks - chosen.sum(axis=0)).sum())
        waiting = np.zeros(len(self), bool)
        waiting[steps] = True
        waiting[1:] |= waiting[:-1].copy()
        return 2 * int(self.waited_ns[waiting].sum()) >= idle

    def named(self) -> Iterator[NamedWork]:
        """Yield own work by name, some of the steps at a time, in their order."""
        names = sorted({name for rank in self.job.ranks for name in rank.names} | {NOT_ANNOTATED})
        index = {name: at for at, name in enumerate(names)}
        # Names of all ranks in a row.
        number = np.array([index[name] for rank in self.job.ranks for name in rank.names], np.int64)
        blocks = self.job.blocks("steps", "spans")
        while (block := next(blocks, None)) is not None:
            part = self._named(block, names, number)
            # Of the chunks of a thousand ranks two at a time are too many.
            del block
            if part is not None:
                yield part

    def _named(self, block: Block, names: list[str], number: Integers) -> NamedWork | None:
        inside = np.isin(block.numbers, self.numbers, assume_unique=True)
        if not inside.any():
            return None
        start = int(np.searchsorted(self.numbers, block.numbers[inside][0]))
        own = np.zeros((len(names), self.ranks, int(inside.sum())), np.int64)
        spans, steps = block.tables.spans, block.tables.steps
        # Of each step its place among those that are judged, if it is; the last is in none.
        cells = np.full(len(steps.rows.number) + 1, UNTOLD)
        cells[block.at[:, inside]] = np.arange(own[0].size).reshape(own[0].shape)
        for first in range(0, self.ranks, RANKS_AT_ONCE):
            lot = slice(first, first + RANKS_AT_ONCE)
            counts, (begin, *_, end) = spans.counts[lot], spans.edges[first : lot.stop + 1].tolist()
            rows = SpanRows(*(column[begin:end] for column in spans.rows))
            row = np.repeat(steps.edges[:-1][lot], counts) + rows.step
            row[rows.step == UNTOLD] = len(cells) - 1
            cell = cells.take(row)
            name = number.take(np.repeat(self._first_name[lot], counts) + rows.name)
            at = name * own[0].size + cell
            took = rows.end_ns - rows.start_ns - rows.blocked_ns
            if (left_out := cell == UNTOLD).any():
                at, took = at[~left_out], took[~left_out]
            np.add.at(own.reshape(-1), at, took)
        blocked = block.blocked_ns[:, inside]
        rest = block.time_ns[:, inside] - blocked - own.sum(0)
        own[names.index(NOT_ANNOTATED)] = np.maximum(rest, 0)
        seen = np.flatnonzero(own.any(axis=(1, 2))).tolist()
        return NamedWork(
            slice(start, start + own.shape[2]),
            tuple(names[at] for at in seen),
            own[seen],
            blocked,
            block.gc_ns[:, inside],
        )

    @cached_property
    def _first_name(self) -> Integers:
        counts = [len(rank.names) for rank in self.job.ranks]
        return np.cumsum(counts) - counts

    def _some_ranks(self, values: Integers) -> Iterator[Integers]:
        for at in range(0, len(values), RANKS_AT_ONCE):
            yield values[at : at + RANKS_AT_ONCE]

    def _some_steps(self, values: Integers) -> Iterator[Integers]:
        for at in range(0, values.shape[1], STEPS_AT_ONCE):
            yield values[:, at : at + STEPS_AT_ONCE]


class _Totals(NamedTuple):
    """What is kept of a block of steps."""

    numbers: Integers
    own_ns: Integers
    time_ns: Integers
    waited_ns: Integers
    of_rank_ns: Integers

    @classmethod
    def of(cls, block: Block) -> _Totals:
        time, blocked = block.time_ns, block.blocked_ns
        waited = blocked.sum(axis=0) - len(blocked) * blocked.min(axis=0)
        return cls(block.numbers, time - blocked, time.max(axis=0), waited, time.sum(axis=1))

    @classmethod
    def of_none(cls, ranks: int) -> _Totals:
        none = np.zeros(0, np.int64)
        return cls(none, np.zeros((ranks, 0), np.int64), none, none, np.zeros(ranks, np.int64))


def steady_steps(job: RanksOfJob) -> Integers:
    """Return what the steady steps are called that all ranks have: those that are judged."""
    blocks = [(block.numbers, block.time_ns.max(axis=0)) for block in job.blocks("steps")]
    if not blocks:
        return np.zeros(0, np.int64)
    numbers, time = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return numbers[_steady(job, time)]


def _steady(job: RanksOfJob, time_ns: Integers) -> Integers:
    """Return which of the steps that all ranks have are judged, by the longest of each."""
    if not len(time_ns):
        return np.zeros(0, bool)
    steady = steady_times(time_ns, np.zeros(len(time_ns), bool)).mask
    # Who waits for one that is gone is not kept waiting by who is slow.
    steady[-1:] &= not job.breaks_off
    return steady


def part_in_steps(job: RanksOfJob, time_ns: Integers) -> float:
    """Return the part of the time that lies in steps: of the rank that has least between them."""
    whole = float(time_ns.sum())
    apart = min((one.apart_ns / max(one.step_count, 1) for one in job.ranks), default=0.0)
    return whole / max(whole + apart * len(time_ns), 1.0)


def _ahead(job: RanksOfJob, whole_ns: int, of_rank_ns: int, steady: Integers) -> float:
    """Return `OwnWork.ahead`, by how long the rank was in all steps that was so for longest."""
    if whole_ns <= IN_STEP * of_rank_ns or not len(steady):
        return 1.0
    # Of the steps that are judged, which are read once more: in the first ones no rank is in step.
    most, mine = 0, np.zeros(len(job.ranks), np.int64)
    for block in job.blocks("steps"):
        chosen = block.time_ns[:, np.isin(block.numbers, steady, assume_unique=True)]
        most += int(chosen.max(axis=0, initial=0).sum())
        mine += chosen.sum(axis=1)
    return max(most / max(int(mine.max()), 1), 1.0)


def _stages(places: list[Place]) -> Integers | None:
    told = [place.stage for place in places]
    known = [stage for stage in told if stage is not None]
    if len(known) < len(told) or len(set(known)) < 2:
        return None
    return np.array(known, np.int64)


def levels_of(values: Integers, labels: Integers) -> Integers:
    """Return the low median of the ranks of each label in each step, ``(labels, steps)``."""
    found = [np.flatnonzero(labels == label) for label in np.unique(labels).tolist()]
    levels = np.empty((len(found), values.shape[1]), np.int64)
    for at in range(0, values.shape[1], STEPS_AT_ONCE):
        steps = slice(at, at + STEPS_AT_ONCE)
        for row, ranks in enumerate(found):
            # Steps in rows, one rank after the other: what is sorted lies together.
            levels[row, steps] = low_median(np.ascontiguousarray(values[ranks, steps].T), 1)
    return levels


def excess_of(values: Integers, peers: Integers) -> Integers:
    """Return how much more than the low median of comparable ranks, ``(ranks, steps)``."""
    of_rank = np.unique(peers, return_inverse=True)[1]
    excess = np.empty_like(values)
    for at in range(0, values.shape[1], STEPS_AT_ONCE):
        part = values[:, at : at + STEPS_AT_ONCE]
        excess[:, at : at + STEPS_AT_ONCE] = part - levels_of(part, peers)[of_rank]
    return excess


def onset_of(excess: Integers) -> int:
    """Return at which step ranks began to be late; 0 where they always were."""
    batches = min(len(excess), BATCHES_OF_LEVELS)
    change = change_of(batch_medians(excess, batches))
    if change.before >= LEVELS_APART * change.after:
        return 0
    # To the step: where the two levels fit best, by what is left before it and from it on.
    before, after = np.abs(excess - change.before), np.abs(excess - change.after)
    left = np.concatenate([[0.0], np.cumsum(before - after)]) + after.sum()
    at = int(left.argmin())
    one_level = float(np.abs(excess - low_median(excess)).sum())
    return at if 0 < at < len(excess) and left[at] < FITS_BETTER * one_level else 0


def single_steps(
    time_ns: Integers,
    straggle_ns: Integers,
    last: Integers,
    is_waited_for: Callable[[Integers], bool],
) -> Integers:
    """Return a step, or two, that one rank made far longer than all others are, as a mask.

    Args:
        time_ns: how long each step takes.
        straggle_ns: how much longer the last rank works in it than is usual among ranks.
        last: the index of that rank.
        is_waited_for: tells of some steps, a mask, whether others wait in them for the last.
    """
    nothing = np.zeros(len(time_ns), bool)
    usual = low_median(time_ns)
    excess = time_ns - usual
    long = excess > max(SCALES_OF_ONCE * lower_scale(time_ns), 2 * usual)
    # Others that are a little long do not hide one that is more than all of them.
    alike = long & (excess >= MOST_OF_ONCE * excess.max(initial=0))
    most = MOST_OF_ONCE * max(int((excess * long).sum()), 1)
    if not 0 < alike.sum() < FEWEST_PAUSES or int((excess * long)[alike].sum()) < most:
        return nothing
    worst = int(np.where(alike, straggle_ns, -1).argmax())
    this = np.arange(len(time_ns)) == worst
    if straggle_ns[worst] < MOST_OF_ONCE * excess[worst] or not is_waited_for(this):
        return nothing
    its: Integers = alike & (last == last[worst])
    return its
