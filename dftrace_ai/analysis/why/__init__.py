"""Why steps are slow: from the traces of a run to a verdict, or to silence with its reason.

It needs NumPy. One call judges them::

    from dftrace_ai.analysis.why import why

    verdict = why(["out/"])
    print(verdict.verdict, [finding.what for finding in verdict.findings])
"""

from __future__ import annotations

from dftrace_ai.analysis.why.model import (
    LIMITS,
    Finding,
    Limit,
    Verdict,
    limits_of,
    verdict_adapter,
)
from dftrace_ai.analysis.why.verdict import why
from dftrace_ai.analysis.why.words import verdict_lines

__all__ = [
    "LIMITS",
    "Finding",
    "Limit",
    "Verdict",
    "limits_of",
    "verdict_adapter",
    "verdict_lines",
    "why",
]
