"""Two runs compared step by step: what became slower, faster, new and gone, or silence.

It needs NumPy. One call compares them::

    from dftrace_ai.analysis.diff import diff

    found = diff("out/before", "out/after")
    print(found.verdict, [row.name for row in found.names if row.change.kind == "slower"])
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from dftrace_ai.analysis.diff.comparing import Condition, compare, conditions_of, diff
from dftrace_ai.analysis.diff.model import Change, Diff, Judged, Row, RunFacts, diff_adapter

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading import TraceSet

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


class _Called(ModuleType):
    """What `from dftrace_ai.analysis import diff` gives: imports set the name to this package."""

    def __call__(
        self,
        before: str | os.PathLike[str] | TraceSet,
        after: str | os.PathLike[str] | TraceSet,
        conditions: Sequence[Condition] = (),
    ) -> Diff:
        return diff(before, after, conditions)


sys.modules[__name__].__class__ = _Called
