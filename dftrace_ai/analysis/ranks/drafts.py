"""Findings whose spans are not known yet, and what rules for them are made on."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.own_work import single_steps

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.findings import Late
    from dftrace_ai.analysis.ranks.named_work import Where
    from dftrace_ai.analysis.ranks.own_work import OwnWork
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.thresholds import Limits

# Who stands out is so many scales beyond the others.
SCALES: Final = 6
# No scale is less than this part of a step, nor than so many errors of what it is made of.
LEAST_SCALE: Final = 0.005
ERRORS: Final = 2
# Where it costs less than a warning it is told for information from here on.
INFO_COST: Final = 0.03
INFO_LOW: Final = 0.02


class Crowd(NamedTuple):
    """Ranks of a host that has fewer processors."""

    ranks: int
    cpus: int


class Draft(NamedTuple):
    """A finding whose spans are not known yet."""

    late: Late
    where: Where
    slight: bool = False
    rotates: bool = False  # whether data, pauses or jitter, its correlation says
    each: tuple[Where, ...] = ()  # of several ranks that may be late in other spans each

    def beside_turns(self, turns: Where) -> Draft:
        """Return it as what is late once nobody is by turns, its spans where nobody is."""
        figures = replace(self.late.figures, beside_turns=True)
        apart = None if turns.beyond_ns is None else turns.work.excess_ns > turns.beyond_ns
        return self._replace(
            late=replace(self.late, figures=figures),
            where=replace(self.where, apart=apart),
            each=tuple(replace(one, apart=apart) for one in self.each),
        )

    def is_just(self, ranks: Integers) -> bool:
        """Return whether some ranks, a mask, are those that are told by it."""
        return self.where.ranks is not None and bool((self.where.ranks == ranks).all())


class Rules:
    """What rules over own work have in common.

    Args:
        work: what ranks did themselves.
        limits: from which costs on something is a finding.
    """

    def __init__(self, work: OwnWork, limits: Limits) -> None:
        self.work = work
        self.limits = limits
        self.unwaited = False
        self.drafts: list[Draft] = []
        self.places = [rank.place for rank in work.job.ranks]
        hosts = [place.host or place.clock for place in self.places]
        self.hosts, self.host_of = np.unique(np.array(hosts, object), return_inverse=True)
        self.least = LEAST_SCALE * work.step_ns if len(work) else 0.0

    def crowd(self, ranks: Integers) -> Crowd | None:
        """Return the host of some ranks that has most ranks for a processor, if that is several."""
        of_host = np.bincount(self.host_of).tolist()
        crowds = [
            Crowd(of_host[self.host_of[at]], cpus)
            for at in np.flatnonzero(ranks).tolist()
            if (cpus := self.places[at].cpus) and of_host[self.host_of[at]] > cpus
        ]
        return max(crowds, key=lambda crowd: crowd.ranks / crowd.cpus, default=None)

    @cached_property
    def most_crowded(self) -> Crowd | None:
        """The host that has most ranks for a processor, if that is several."""
        return self.crowd(np.ones(self.work.ranks, bool))

    def numbers_of(self, late: Integers) -> tuple[int, ...]:
        """Return the numbers of ranks, a mask."""
        return tuple(self.places[at].rank for at in np.flatnonzero(late).tolist())

    @cached_property
    def single(self) -> Integers:
        """A single step that is far longer than the others, or two, as a mask."""
        work = self.work
        return single_steps(work.time_ns, work.straggle_ns, work.last, work.is_waited_for)

    @property
    def told_once(self) -> tuple[int, ...]:
        """The number of that step, or of both."""
        return tuple(self.work.numbers[self.single].tolist())
