"""What is known of who is late: figures, without sentences and confidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from dftrace_ai.analysis.ranks.model import Evidence

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.model import Excess, Kind, RankRow, Turn
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.robust_statistics import Share
    from dftrace_ai.analysis.thresholds import Severity


@dataclass(frozen=True)
class Late:
    """Who is late, or that somebody always is."""

    kind: Kind  # what it is
    turn: Turn  # all the time, since a step, in bursts, or by turns
    severity: Severity  # how much it costs, by the limits
    # That, of the time; of what began at a step, from there on, and without one that is told once.
    cost: float
    low: float  # the lower end of its 95 % interval
    without: float  # how many times as long it takes with as without it
    # How much longer they work in a step, the median; of pauses in those, of bursts the mean of
    # those, of once in the longest.
    late_ns: int
    # How long the one in the middle of the others waits a step: the usual one, of bursts and once
    # on average over all; 0 where it is nobody in particular.
    waits_ns: int = 0
    ranks: tuple[int, ...] = ()  # who; empty where it is nobody in particular
    hosts: tuple[str, ...] = ()  # of a slow node, which
    stages: tuple[int, ...] = ()  # of a slow stage, which
    since: int | None = None  # the number of the step from which on; None for all the time
    last_share: float = 0.0  # in which part of the steps one of them works longest; 0 for nobody
    names: tuple[Excess, ...] = ()  # in what, one or two
    figures: Evidence = field(default_factory=Evidence)  # what else shows it

    @classmethod
    def of(
        cls,
        kind: Kind,
        turn: Turn,
        severe: Severity,
        cost: Share,
        late_ns: int,
        figures: Evidence,
        *,
        waits_ns: int = 0,
        ranks: tuple[int, ...] = (),
        hosts: tuple[str, ...] = (),
        stages: tuple[int, ...] = (),
        since: int | None = None,
        last_share: float = 0.0,
    ) -> Late:
        """Return one whose names are not known yet, by what it costs."""
        return cls(
            kind,
            turn,
            severe,
            round(cost.share, 6),
            round(cost.low, 6),
            round(1 / max(1 - cost.share, 1e-6), 6),
            late_ns,
            waits_ns,
            ranks,
            hosts,
            stages,
            since,
            last_share,
            figures=figures,
        )


Silence = Literal["", "one rank", "no common steps", "few steps", "nobody waits"]
"""Why nothing is judged."""


@dataclass(frozen=True)
class Lateness:
    """What own work says."""

    common: int = 0  # so many steps all ranks have
    steady: int = 0  # of these, so many are judged
    step_ns: int = 0  # the usual one, of the rank that takes longest
    found: tuple[Late, ...] = ()  # who is late, in the order of the rules
    slight: tuple[Late, ...] = ()  # who is late as a rule and costs too little to be a finding
    slowest: tuple[int, float] | None = None  # who works longest as a rule, and what that costs
    scores: tuple[RankRow, ...] = ()  # of each rank, by its number
    abstains: Silence = ""  # why nobody is judged
    # The numbers of the steps that are.
    judged: Integers = field(
        default_factory=lambda: np.zeros(0, np.int64), repr=False, compare=False
    )
