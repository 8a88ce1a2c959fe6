"""What is known of who is late: figures, without sentences and confidence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from dftrace_ai.analysis.ranks.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
            *_rounded(cost),
            late_ns,
            waits_ns,
            ranks,
            hosts,
            stages,
            since,
            last_share,
            figures=figures,
        )

    def costing(self, cost: Share, severe: Severity) -> Late:
        """Return it with what it costs by another measure."""
        share, low, without = _rounded(cost)
        return replace(self, severity=severe, cost=share, low=low, without=without)


def _rounded(cost: Share) -> tuple[float, float, float]:
    """Return a cost, its lower end, and how many times as long it takes with as without it."""
    without = 1 / max(1 - cost.share, 1e-6)
    return round(cost.share, 6), round(cost.low, 6), round(without, 6)


_Told = TypeVar("_Told")


def behind_others(
    findings: Iterable[_Told], is_behind: Callable[[_Told, _Told], bool]
) -> tuple[_Told, ...]:
    """Return findings in their order, but each behind those which have to be mended before it.

    Args:
        findings: some.
        is_behind: tells of the first whether it is so once the second is mended.
    """
    left, ordered = [*findings], list[_Told]()
    while left:
        free = (
            at
            for at, one in enumerate(left)
            if not any(is_behind(one, other) for other in left if other is not one)
        )
        ordered.append(left.pop(next(free, 0)))
    return tuple(ordered)


def is_beside(
    ranks: Sequence[int], turn: str, beside_ranks: Sequence[int], *, beside_turns: bool
) -> bool:
    """Return whether what is so beside some ranks, or what comes by turns, is so by these."""
    if beside_turns and turn == "rotating":
        return True
    return bool(ranks) and {*ranks} <= {*beside_ranks}


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
