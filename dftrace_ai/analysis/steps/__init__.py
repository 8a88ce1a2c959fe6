"""Finding the steps of a training in its spans, and where the time of each goes."""

from __future__ import annotations

from dftrace_ai.analysis.steps.job import Job, Rank
from dftrace_ai.analysis.steps.measuring import Steps, measure
from dftrace_ai.analysis.steps.processes import Process
from dftrace_ai.analysis.steps.timeline import PARTS, Part

__all__ = ["PARTS", "Job", "Part", "Process", "Rank", "Steps", "measure"]
