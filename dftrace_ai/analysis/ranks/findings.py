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
    """Who is late, or that somebody always is.

    Attributes:
        kind: what it is.
        turn: all the time, since a step, in bursts, or by turns.
        severity: how much it costs, by the limits.
        cost: that, of the time; of what began at a step, from there on.
        low: the lower end of its 95 % interval.
        without: how many times as long it takes with as without it.
        late_ns: how much longer they work in a step, the median; of pauses in those, of bursts the
            mean of those, of once in the longest.
        waits_ns: how long the one in the middle of the others waits a step: the usual one, of
            bursts and once on average over all; 0 where it is nobody in particular.
        ranks: who; empty where it is nobody in particular.
        hosts: of a slow node, which.
        stages: of a slow stage, which.
        since: the number of the step from which on; None for all the time.
        last_share: in which part of the steps one of them works longest; 0 for nobody.
        names: in what, one or two.
        figures: what else shows it.
    """

    kind: Kind
    turn: Turn
    severity: Severity
    cost: float
    low: float
    without: float
    late_ns: int
    waits_ns: int = 0
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    since: int | None = None
    last_share: float = 0.0
    names: tuple[Excess, ...] = ()
    figures: Evidence = field(default_factory=Evidence)

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
    """What own work says.

    Attributes:
        common: so many steps all ranks have.
        steady: of these, so many are judged.
        step_ns: the usual one, of the rank that takes longest.
        found: who is late, in the order of the rules.
        slight: who is late as a rule and costs too little to be a finding.
        slowest: who works longest as a rule, and what that costs.
        scores: of each rank, by its number.
        abstains: why nobody is judged.
        judged: the numbers of the steps that are.
    """

    common: int = 0
    steady: int = 0
    step_ns: int = 0
    found: tuple[Late, ...] = ()
    slight: tuple[Late, ...] = ()
    slowest: tuple[int, float] | None = None
    scores: tuple[RankRow, ...] = ()
    abstains: Silence = ""
    judged: Integers = field(
        default_factory=lambda: np.zeros(0, np.int64), repr=False, compare=False
    )
