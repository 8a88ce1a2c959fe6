"""How fast each rank is beside comparable ones, and beside its own best.

As the scores of NVIDIA's resiliency extension (`straggler`): ratios of medians, 1 for the best. No
verdict rests on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.model import NameScore, RankRow
from dftrace_ai.analysis.ranks.own_work import low_median

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.own_work import NamedWork, OwnWork
    from dftrace_ai.analysis.reading.event_columns import Integers

# A rank's best is that of so many steps that follow each other.
WINDOW: Final = 20


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
