"""Own work and waiting of ranks beside each other, step by step, as two maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.report.model import HeatMap

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.why.judging import JudgedRank

MOST_COLUMNS: Final = 80
MOST_ROWS: Final = 64
MOST_BY_THEMSELVES: Final = 24
MS: Final = 1e6
OWN: Final = "own work, ms"
WAITS: Final = "waits for others, ms"


def rank_maps(judged: Iterable[JudgedRank], odd: Collection[int]) -> list[HeatMap]:
    """Return own work and waiting by rank and step; nothing where no step is of several ranks.

    Those that are odd come first; of large jobs the others are in groups, with the most of any.
    """
    partials = [one.partial for one in judged if one.partial is not None]
    if len(partials) < 2 or len({one.place.rank for one in partials}) < len(partials):
        return []
    job = RanksOfJob.of(partials)
    numbers = job.common
    if not len(numbers):
        return []
    starts = np.unique(np.linspace(0, len(numbers), MOST_COLUMNS + 1).astype(int)[:-1])
    own = np.zeros((len(job.ranks), len(starts)), np.int64)
    waits = np.zeros_like(own)
    for block in job.blocks("steps"):
        at = np.searchsorted(starts, np.searchsorted(numbers, block.numbers), side="right") - 1
        first = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
        for into, ns in ((own, block.total_own_ns), (waits, block.blocked_ns)):
            most = np.maximum.reduceat(ns, first, axis=1)
            into[:, at[first]] = np.maximum(into[:, at[first]], most)
    first = numbers[starts]
    last = numbers[np.append(starts[1:], len(numbers)) - 1]
    rows = _rows([one.place.rank for one in job.ranks], own, odd)
    labels = [_label([job.ranks[at].place.rank for at in row]) for row in rows]
    return [
        HeatMap(
            statistic,
            "",
            labels,
            first.tolist(),
            last.tolist(),
            [(values[row].max(0) / MS).round(3).tolist() for row in rows],
            0,
            of="rank",
        )
        for statistic, values in ((OWN, own), (WAITS, waits))
    ]


def _rows(numbers: Sequence[int], own: Integers, odd: Collection[int]) -> list[list[int]]:
    """Return which ranks each row is of: who stands out, the one that works longest first."""
    usual = np.median(own, 1)
    apart = sorted((at for at, one in enumerate(numbers) if one in odd), key=lambda at: -usual[at])
    apart = apart[:MOST_BY_THEMSELVES]
    others = [at for at in range(len(numbers)) if at not in set(apart)]
    groups = min(len(others), MOST_ROWS - len(apart))
    return [[at] for at in apart] + [part.tolist() for part in np.array_split(others, groups or 1)]


def _label(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
