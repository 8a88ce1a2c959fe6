"""Two runs compared step by step: what became slower, faster, new and gone, or silence.

It needs NumPy. One call compares them::

    from dftrace_ai.analysis.diff import diff

    found = diff("out/before", "out/after")
    print(found.verdict, [row.name for row in found.names if row.change.kind == "slower"])
"""

from __future__ import annotations

from dftrace_ai.analysis.diff.comparing import Condition, compare, conditions_of, diff
from dftrace_ai.analysis.diff.model import Change, Diff, Judged, Row, RunFacts, diff_adapter

__all__ = [
    "Change",
    "Condition",
    "Diff",
    "Judged",
    "Row",
    "RunFacts",
    "compare",
    "conditions_of",
    "diff",
    "diff_adapter",
]
