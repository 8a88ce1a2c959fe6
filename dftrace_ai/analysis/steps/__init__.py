"""Finding the steps of a training in its spans, and where the time of each goes."""

from __future__ import annotations

from dftrace_ai.analysis.steps.job import Job, Rank
from dftrace_ai.analysis.steps.measuring import BlockedSteps, Steps, measure, measure_blocked
from dftrace_ai.analysis.steps.processes import Process
from dftrace_ai.analysis.steps.timeline import PARTS, Part

__all__ = [
    "PARTS",
    "BlockedSteps",
    "Job",
    "Part",
    "Process",
    "Rank",
    "Steps",
    "measure",
    "measure_blocked",
]
