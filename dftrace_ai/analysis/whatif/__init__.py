"""How fast a job of many ranks would be with even work, and what makes it slower.

It needs NumPy. One call judges a job::

    from dftrace_ai.analysis.whatif import whatif

    found = whatif("out/", without=[{"rank": "17"}])
    print(found.slowdown, found.cause.kind, found.without[0].ratio)
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from dftrace_ai.analysis.whatif.judging import Answer, whatif, whatif_of
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
from dftrace_ai.analysis.whatif.timeline import write_timeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dftrace_ai.analysis.reading.trace_set import TracePaths

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
    "whatif",
    "whatif_of",
    "write_timeline",
]


class _Called(ModuleType):
    """What `from dftrace_ai.analysis import whatif` gives: imports set the name to this package."""

    def __call__(self, paths: TracePaths, *, without: Sequence[Mapping[str, str]] = ()) -> WhatIf:
        # Late: who looks at the types alone does without the graph.
        from dftrace_ai.analysis.whatif.judging import whatif

        return whatif(paths, without=without)


sys.modules[__name__].__class__ = _Called
