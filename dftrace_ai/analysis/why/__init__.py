"""Why steps are slow: from the traces of a run to a verdict, or to silence with its reason.

It needs NumPy. One call judges them::

    from dftrace_ai.analysis.why import why

    verdict = why(["out/"])
    print(verdict.verdict, [finding.what for finding in verdict.findings])
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from dftrace_ai.analysis.thresholds import Limit
from dftrace_ai.analysis.why.model import (
    LIMITS,
    Finding,
    PluginFinding,
    Verdict,
    limits_of,
    verdict_adapter,
)
from dftrace_ai.analysis.why.plugged_in import JudgedRun
from dftrace_ai.analysis.why.verdict import why
from dftrace_ai.analysis.why.words import verdict_lines

if TYPE_CHECKING:
    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.reading.trace_set import TracePaths
    from dftrace_ai.analysis.thresholds import Limits

__all__ = [
    "LIMITS",
    "Finding",
    "JudgedRun",
    "Limit",
    "PluginFinding",
    "Verdict",
    "limits_of",
    "verdict_adapter",
    "verdict_lines",
    "why",
]


class _Called(ModuleType):
    """What `from dftrace_ai.analysis import why` gives: imports set the name to this package."""

    def __call__(
        self, paths: TracePaths, limits: Limits | None = None, spread: Spread | None = None
    ) -> Verdict:
        return why(paths, limits, spread)


sys.modules[__name__].__class__ = _Called
