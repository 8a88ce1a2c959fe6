"""What operations take in other runs than the measured: with even work, or without somebody's.

Work is compared in *cells*: what one rank did of one kind in one step, which waiting may have cut
into several pieces. A cell is made longer or shorter as a whole. Communication is even where each
transfer takes the median of its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.whatif.operations import Operations

# Of what ranks work longer so much is what they alone have a span for.
MOST_OF_IT: Final = 0.5


class Levels(NamedTuple):
    """What work of a kind usually takes, each ``(kinds, ranks)``; NaN where a rank has none."""

    mean: Integers  # of a rank
    stage: Integers  # of the rank in the middle of its stage
    job: Integers  # of all stages together
    cells: Integers  # how many it has


class _Sorted(NamedTuple):
    """Cells in order of what they take, among those that they are compared with."""

    order: Integers
    group: Integers  # of each cell, among whom it is compared


@dataclass(frozen=True, repr=False)
class Work:
    """Operations in cells."""

    operations: Operations  # all of them
    times: Integers  # what each takes
    ranks: int  # how many ranks there are
    cell: Integers  # of each operation of work its cell; of communication nothing that is used
    own: Integers  # what each cell takes
    kind: Integers  # of each cell, what is alike over ranks and steps: index of kind and piece
    rank: Integers  # of each cell
    first: Integers  # the first operation of each cell
    slot: Integers  # of each cell, what it is compared by: kind, piece, which of them, and step
    stage: Integers  # of each rank, its stage as an index
    ideal: Integers  # what each operation takes with even work
    extra: Integers  # of each kind, whether the ranks that have it do it beside what the others do
    _within_stage: _Sorted
    _overall: _Sorted

    @classmethod
    def of(cls, operations: Operations, times: Integers, stage: Integers) -> Work:
        """Put operations into cells."""
        one = operations
        ranks = len(stage)
        alike = _numbered(one.kind, one.piece)
        work = np.flatnonzero(~one.is_comm)
        slot_of = _numbered(alike, one.nth, one.step)
        _, first, at = np.unique(
            slot_of[work] * ranks + one.rank[work], return_index=True, return_inverse=True
        )
        cell = np.zeros(len(one), np.int64)
        cell[work] = at.reshape(-1)
        own = np.bincount(cell[work], times[work], len(first)).astype(np.int64)
        first = work[first]
        kind, rank, slot = alike[first], one.rank[first], slot_of[first]
        whole = _rounded_means(own, kind)
        extra = _extra(own, kind, rank, stage)
        # Even work deals it out to all.
        having = np.bincount(np.unique(kind * ranks + rank) // ranks, minlength=len(extra))
        whole = np.where(extra, np.rint(whole * having / ranks), whole)
        ideal = _even_transfers(one, times, alike)
        made = cls(
            operations=one,
            times=times,
            ranks=ranks,
            cell=cell,
            own=own,
            kind=kind,
            rank=rank,
            first=first,
            slot=slot,
            stage=stage,
            ideal=ideal,
            extra=extra,
            _within_stage=_sorted(own, slot * (int(stage.max(initial=0)) + 1) + stage[rank]),
            _overall=_sorted(own, slot),
        )
        ideal[work] = made.scaled(whole[kind])[work]
        return made

    def scaled(self, target: Integers) -> Integers:
        """Return what operations take when each cell takes so much; communication as it was."""
        one = self.operations
        times: Integers = self.times.copy()
        work = ~one.is_comm
        ratio = target / np.maximum(self.own, 1)
        times[work] = np.rint(self.times[work] * ratio[self.cell[work]]).astype(np.int64)
        # Where nothing was done there is nothing to make longer.
        none = self.own == 0
        times[self.first[none]] = np.rint(target[none]).astype(np.int64)
        return times

    def without(self, out: Integers, *, by_stage: bool) -> Integers | None:
        """Return what operations take when some ranks work no longer than the others."""
        among = self._within_stage if by_stage else self._overall
        others = among.order[~out[self.rank[among.order]]]
        mine = np.flatnonzero(out[self.rank])
        group = among.group[others]
        count = np.bincount(group, minlength=int(among.group.max(initial=0)) + 1)
        alone = mine[self.extra[self.kind[mine]]]
        compared = mine[count[among.group[mine]] > 0]
        if not len(compared) and not len(alone):
            return None
        at = among.group[compared]
        start = (np.cumsum(count) - count)[at]
        middle = (
            self.own[others[start + (count[at] - 1) // 2]]
            + self.own[others[start + count[at] // 2]]
        )
        target = self.own.copy()
        target[alone] = 0
        target[compared] = np.minimum(self.own[compared], middle // 2)
        return self.scaled(target)

    def levels(self) -> Levels:
        """Return what work of each kind usually takes by rank, by stage and over all."""
        kinds = int(self.kind.max(initial=-1)) + 1
        at = self.kind * self.ranks + self.rank
        total = np.bincount(at, self.own, kinds * self.ranks).reshape(kinds, self.ranks)
        count = np.bincount(at, minlength=kinds * self.ranks).reshape(kinds, self.ranks)
        mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        mean[self.extra] = np.nan_to_num(mean[self.extra])
        stages = np.unique(self.stage)
        of_stage = np.stack([low_medians(mean[:, self.stage == stage]) for stage in stages], 1)
        known = ~np.isnan(of_stage)
        job = np.where(known, of_stage, 0).sum(1) / np.maximum(known.sum(1), 1)
        return Levels(
            mean,
            of_stage[:, np.searchsorted(stages, self.stage)],
            np.broadcast_to(job[:, None], mean.shape),
            count,
        )

    def by_level(self, level: Integers) -> Integers:
        """Return for each cell what a table by kind and rank says."""
        found: Integers = level[self.kind, self.rank]
        return found


def _numbered(*keys: Integers) -> Integers:
    """Return a number for each combination of keys, from 0 on, in their order."""
    whole: Integers = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        whole = whole * (int(key.max(initial=0)) + 1) + key
        whole = np.unique(whole, return_inverse=True)[1].reshape(-1)
    return whole


def _sorted(own: Integers, group: Integers) -> _Sorted:
    return _Sorted(np.lexsort((own, group)), group)


def _extra(own: Integers, kind: Integers, rank: Integers, stage: Integers) -> Integers:
    """Return which kinds of work few ranks of a stage have, and these beside all that others do.

    Others may have done the same in a span of another name, or in none: then all in all they work
    as long.
    """
    ranks, kinds = len(stage), int(kind.max(initial=-1)) + 1
    by_kind = np.bincount(kind * ranks + rank, own, kinds * ranks).reshape(kinds, ranks)
    whole = by_kind.sum(0)
    extra = np.zeros(kinds, bool)
    for one in np.unique(stage).tolist():
        mine = by_kind[:, stage == one]
        has = mine > 0
        usual = np.sort(whole[stage == one])[(mine.shape[1] - 1) // 2]
        longer = np.where(has, (whole[stage == one] - usual)[None], 0)
        few = has.any(1) & (2 * has.sum(1) < mine.shape[1])
        extra |= few & (longer.max(1) >= MOST_OF_IT * mine.max(1))
    return extra


def _rounded_means(own: Integers, kind: Integers) -> Integers:
    count = np.bincount(kind)
    means: Integers = np.rint(np.bincount(kind, own) / np.maximum(count, 1))
    return means


def _even_transfers(one: Operations, times: Integers, alike: Integers) -> Integers:
    """Return the times, each transfer as the median of its kind."""
    even: Integers = times.copy()
    comm = np.flatnonzero(one.is_comm)
    if not len(comm):
        return even
    order = comm[np.lexsort((times[comm], alike[comm]))]
    kinds, first, count = np.unique(alike[order], return_index=True, return_counts=True)
    low, high = order[first + (count - 1) // 2], order[first + count // 2]
    middle = (times[low] + times[high]) // 2
    even[comm] = middle[np.searchsorted(kinds, alike[comm])]
    return even


def low_medians(table: Integers) -> Integers:
    """Return the middle of what is there in each row, of an even count the lower."""
    values = np.sort(table, 1)
    count = (~np.isnan(values)).sum(1)
    middle: Integers = values[np.arange(len(values)), np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, middle, np.nan)
