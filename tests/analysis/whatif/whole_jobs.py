"""Clocks of a job, for tests that ask nothing else of its collectives."""

from __future__ import annotations

from dftrace_ai.analysis.ranks.calls import RanksInOrder
from dftrace_ai.analysis.ranks.clocks import Clocks, ClockSamples
from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.ranks.matching import Matching


def clocks_of(job: RanksOfJob) -> Clocks:
    """Bring the clocks of hosts to one."""
    samples, matching = ClockSamples(job.ranks, RanksInOrder.of(job.ranks)), Matching(job.ranks)
    for block in job.blocks():
        for matches in matching.take(block):
            samples.add(matches)
    return samples.clocks()
