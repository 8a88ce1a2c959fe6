"""Own work by the names of spans: in which of them something is longer, and how ranks score.

Apart from `lateness`, which judges who is late: here is in which spans.

Scores are as those of NVIDIA's resiliency extension (`straggler`): ratios of medians, 1 for the
best, of a rank beside comparable ones and beside its own best. No verdict rests on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.model import Excess, NameScore, RankRow
from dftrace_ai.analysis.ranks.own_work import excess_of, low_median
from dftrace_ai.analysis.ranks.partials import GARBAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dftrace_ai.analysis.ranks.own_work import NamedWork, OwnWork
    from dftrace_ai.analysis.reading.event_columns import Integers

# Of what is longer, so much is most of it, and so much is worth a look, too.
MOST_OF_IT: Final = 0.5
MUCH_OF_IT: Final = 0.25
# A rank's best is that of so many steps that follow each other.
WINDOW: Final = 20


@dataclass(frozen=True, repr=False)
class Where:
    """Steps of ranks in which something is longer, and by the names of which it is told."""

    work: OwnWork
    ranks: Integers | None = None  # a mask; None for all
    steps: Integers | None = None  # the same
    beyond_ns: float | None = None  # only where a rank works so much longer
    apart: Integers | None = None  # what is told by itself, ``(ranks, steps)``, a mask

    def mask(self, steps: slice) -> Integers:
        """Return where, of some steps, ``(ranks, steps)``."""
        excess = self.work.excess_ns[:, steps]
        chosen = np.ones(excess.shape, bool)
        if self.ranks is not None:
            chosen &= self.ranks[:, None]
        if self.steps is not None:
            chosen &= self.steps[steps]
        if self.beyond_ns is not None:
            chosen &= excess > self.beyond_ns
        if self.apart is not None:
            chosen &= ~self.apart[:, steps]
        return chosen


class Naming:
    """Adds up in which spans something is longer, and how forward and backward go together."""

    def __init__(self, work: OwnWork, wheres: Sequence[Where]) -> None:
        self._work = work
        self._wheres = wheres
        self._longer: list[dict[str, int]] = [{} for _ in wheres]
        self._usual: list[dict[str, int]] = [{} for _ in wheres]
        self._garbage = [0] * len(wheres)
        self._counts = [0] * len(wheres)
        self._moments = np.zeros((5, work.ranks), object)
        # In so small a part of a step that sums of squares are whole numbers of 64 bits.
        self._unit = max(work.step_ns // 4096, 1) if len(work) else 1

    def add(self, part: NamedWork) -> None:
        """Take in some steps."""
        if not self._wheres:
            return
        masks = [where.mask(part.steps) for where in self._wheres]
        collecting = excess_of(part.gc_ns, self._work.peers)
        for at, mask in enumerate(masks):
            self._garbage[at] += int(collecting[mask].sum())
        both = [np.zeros_like(part.own_ns[0]) for _ in range(2)]
        for name, own in zip(part.names, part.own_ns, strict=True):
            excess = excess_of(own, self._work.peers)
            for longer, usual, mask in zip(self._longer, self._usual, masks, strict=True):
                more = int(excess[mask].sum())
                longer[name] = longer.get(name, 0) + more
                usual[name] = usual.get(name, 0) + int(own[mask].sum()) - more
            for at, direction in enumerate(("forward", "backward")):
                if direction in name:
                    both[at] += own
        for at, mask in enumerate(masks):
            self._counts[at] += int(mask.sum())
        x, y = (excess_of(total, self._work.peers) // self._unit for total in both)
        self._moments += np.stack([v.sum(axis=1) for v in (x, y, x * x, y * y, x * y)])

    def names_of(self, *ats: int) -> tuple[Excess, ...]:
        """Return the name with the greatest excess in some places, and the next that has much.

        Collecting garbage lies within spans: where it is half of all, it is told and not these.
        """
        longer_ns, usual = (_added(some[at] for at in ats) for some in (self._longer, self._usual))
        longer = sorted(longer_ns.items(), key=lambda item: (-item[1], item[0]))
        total = sum(ns for _, ns in longer if ns > 0)
        count = max(sum(self._counts[at] for at in ats), 1)
        if (garbage := sum(self._garbage[at] for at in ats)) >= MOST_OF_IT * max(total, 1):
            return (Excess(GARBAGE, garbage // count, round(min(garbage / total, 1.0), 6)),)
        all_usual = max(sum(usual.values()), 1)
        told = [
            Excess(name, ns // count, round(ns / total, 6), round(usual[name] / all_usual, 6))
            for name, ns in longer[:2]
            if ns > 0
        ]
        if len(told) > 1 and told[0].part >= MOST_OF_IT and told[1].part < MUCH_OF_IT:
            del told[1:]
        return tuple(told)

    @property
    def correlation(self) -> float | None:
        """Of forward and backward, by the steps of a rank: that of the rank in the middle.

        None where one of them has no spans. Of a rank that is slow in both it says nothing.
        """
        count = len(self._work)
        found: list[float] = []
        for x, y, xx, yy, xy in self._moments.T.tolist():
            spread = (count * xx - x * x) * (count * yy - y * y)
            found.append((count * xy - x * y) / sqrt(spread) if spread > 0 else 0.0)
        return sorted(found)[(len(found) - 1) // 2] if any(found) else None


def _added(some: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in some:
        for name, ns in one.items():
            total[name] = total.get(name, 0) + ns
    return total


class _Medians(NamedTuple):
    """Of some steps that follow each other: what ranks usually took, and the least of a window."""

    usual: Integers  # (ranks,)
    best: Integers

    @classmethod
    def of(cls, own: Integers) -> _Medians:
        count = own.shape[1] // WINDOW
        usual = low_median(own, 1)
        if not count:
            return cls(usual, usual)
        windows = own[:, : count * WINDOW].reshape(len(own), count, WINDOW)
        return cls(usual, low_median(windows, 2).min(axis=1))

    @classmethod
    def over(cls, parts: list[_Medians]) -> _Medians:
        """Put parts together."""
        best = np.minimum.reduce([part.best for part in parts])
        return cls(low_median(np.stack([part.usual for part in parts]), 0), best)


class Scoring:
    """Takes in own work by name, some steps at a time, and scores ranks by it."""

    def __init__(self, work: OwnWork) -> None:
        self._work = work
        self._all: list[_Medians] = []
        self._waits: list[Integers] = []
        self._names: dict[str, list[_Medians]] = {}

    def add(self, part: NamedWork) -> None:
        """Take in some steps."""
        self._all.append(_Medians.of(self._work.own_ns[:, part.steps]))
        self._waits.append(low_median(part.wait_ns, 1))
        for name, own in zip(part.names, part.own_ns, strict=True):
            self._names.setdefault(name, []).append(_Medians.of(own))

    def rows(self) -> tuple[RankRow, ...]:
        """Return what each rank takes, and its scores."""
        work = self._work
        total = _Medians.over(self._all)
        relative, individual = self._ratios(total)
        wait = low_median(np.stack(self._waits), 0).tolist()
        late = work.usual_excess_ns().tolist()
        last = np.bincount(work.last, minlength=work.ranks) / len(work)
        names: list[dict[str, NameScore]] = [{} for _ in range(work.ranks)]
        for name, parts in sorted(self._names.items()):
            medians = _Medians.over(parts)
            scores = zip(medians.usual.tolist(), *self._ratios(medians), strict=True)
            for of_rank, (own, *ratios) in zip(names, scores, strict=True):
                if own:
                    of_rank[name] = NameScore(own, *ratios)
        return tuple(
            RankRow(
                rank=rank.place.rank,
                host=rank.place.host,
                layout=dict(rank.place.layout),
                own_ns=int(total.usual[at]),
                wait_ns=wait[at],
                last_share=round(float(last[at]), 6),
                late_ns=late[at],
                relative=relative[at],
                individual=individual[at],
                names=names[at],
            )
            for at, rank in enumerate(work.job.ranks)
        )

    def _ratios(self, medians: _Medians) -> tuple[list[float], list[float]]:
        """Return the least of comparable ranks and the best of each rank itself, by its own."""
        least = np.empty_like(medians.usual)
        for label in np.unique(self._work.peers).tolist():
            ranks = self._work.peers == label
            least[ranks] = medians.usual[ranks].min()
        return _ratio(least, medians.usual), _ratio(medians.best, medians.usual)


def _ratio(values: Integers, by: Integers) -> list[float]:
    ratios = np.minimum(values / np.maximum(by, 1), 1.0)
    rounded: list[float] = np.where(by > 0, ratios, 1.0).round(6).tolist()
    return rounded
