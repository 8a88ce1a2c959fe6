"""What a report tells of the members of a job, taken in one at a time and in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.analysis.report.figures.counters import CounterCharts, series_of
from dftrace_ai.analysis.report.figures.facts import FirstProcesses, turns_of
from dftrace_ai.analysis.report.figures.flame import FlameTree
from dftrace_ai.analysis.report.figures.steps import MeasuredRank, SlowestSteps, rank_figures
from dftrace_ai.analysis.report.figures.tensors import TensorPoints
from dftrace_ai.analysis.steps import Rank, measure
from dftrace_ai.analysis.why.judging import has_items, judge_rank

if TYPE_CHECKING:
    from dftrace_ai.analysis.report.model import RankFigures
    from dftrace_ai.analysis.steps import Process
    from dftrace_ai.analysis.steps.job import Named, Order
    from dftrace_ai.analysis.why.judging import JudgedRank
    from dftrace_ai.analysis.why.limits import Limits

__all__ = ["Gathered"]


class Gathered:
    """What was taken in of some members of a job; of tensors all, else little for each rank.

    Args:
        limits: by which ranks are judged.

    Attributes:
        judged: the ranks.
        others_have_items: processes that work for no rank load items of the data.
        last: the rank that was taken in last, where it has steps.
    """

    def __init__(self, limits: Limits) -> None:
        self.judged: list[JudgedRank] = []
        self.others_have_items = False
        self.last: MeasuredRank | None = None
        self.flame = FlameTree()
        self.counters = CounterCharts()
        self.tensors = TensorPoints()
        self.processes = FirstProcesses()
        self.slowest = SlowestSteps()
        self._limits = limits
        self._ranks: dict[Order, tuple[tuple[Named, ...], RankFigures]] = {}

    def add(self, member: Rank | Process) -> None:
        """Take in a rank, or a process that works for none."""
        for turn, process in turns_of(member):
            self.flame.add(turn, process)
            self.counters.add(turn, series_of(process))
            self.tensors.add(turn, process)
            self.processes.add(turn, process)
        if not isinstance(member, Rank):
            self.others_have_items |= has_items(member)
            return
        steps = measure(member.process)
        self.judged.append(judge_rank(member, steps, self._limits))
        self.last = None if steps is None else MeasuredRank(member, steps)
        if self.last is not None:
            self._ranks[member.order] = member.named, rank_figures(self.last)
            self.slowest.add(self.last)

    def merge(self, other: Gathered) -> None:
        """Take in what another has."""
        self.judged += other.judged
        self.others_have_items |= other.others_have_items
        self.last = other.last
        self.flame.merge(other.flame)
        self.counters.merge(other.counters)
        self.tensors.merge(other.tensors)
        self.processes.merge(other.processes)
        self.slowest.merge(other.slowest)
        self._ranks |= other._ranks

    @property
    def ranks(self) -> list[RankFigures]:
        """The rows of all ranks with steps, in their order."""
        return [figures for _, (_, figures) in sorted(self._ranks.items())]

    def named(self, number: int) -> tuple[Named, ...] | None:
        """Return how `Job.again` reads the rank with a number; None where none has steps."""
        found = [order for order in self._ranks if order[0] == number]
        return self._ranks[min(found)][0] if found else None
