"""How fast a job of many ranks would be with even work, and what makes it slower.

It needs NumPy. One call judges a job::

    from dftrace_ai.analysis.whatif import whatif

    found = whatif("out/", without=[{"rank": "17"}])
    print(found.slowdown, found.cause.kind, found.without[0].ratio)
"""

from __future__ import annotations

from dftrace_ai.analysis.whatif.judging import Answer, clocks_of, whatif, whatif_of
from dftrace_ai.analysis.whatif.model import (
    Cause,
    Figures,
    Shares,
    StepFigures,
    StepsJudged,
    Unjudged,
    WhatIf,
    Without,
)

__all__ = [
    "Answer",
    "Cause",
    "Figures",
    "Shares",
    "StepFigures",
    "StepsJudged",
    "Unjudged",
    "WhatIf",
    "Without",
    "clocks_of",
    "whatif",
    "whatif_of",
]
