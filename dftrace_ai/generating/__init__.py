"""Made traces of jobs of many ranks, the same bytes for the same arguments, with planted causes."""

from __future__ import annotations

from dftrace_ai.generating.causes import Cause, cause_of
from dftrace_ai.generating.job import Job, JobClocks
from dftrace_ai.generating.writing import Generated, generate

__all__ = ["Cause", "Generated", "Job", "JobClocks", "cause_of", "generate"]
