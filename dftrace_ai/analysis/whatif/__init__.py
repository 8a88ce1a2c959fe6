"""How fast a job of many ranks would be with even work, and what makes it slower."""

from __future__ import annotations

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
    "Cause",
    "Figures",
    "Shares",
    "StepFigures",
    "StepsJudged",
    "Unjudged",
    "WhatIf",
    "Without",
]
