"""Which of many ranks is late, why, and what it costs.

It needs NumPy. One call judges them::

    from dftrace_ai.analysis import ranks

    verdict = ranks(["out/"])
    print(verdict.verdict, [(finding.ranks, finding.what) for finding in verdict.findings])
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

# Which says what to do where the native reader cannot be loaded.
import dftrace_ai.analysis.reading  # noqa: F401

if TYPE_CHECKING:
    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.ranks.model import RanksVerdict
    from dftrace_ai.analysis.reading.trace_set import TracePaths
    from dftrace_ai.analysis.thresholds import Limits


class _Called(ModuleType):
    """What `from dftrace_ai.analysis import ranks` gives: imports set the name to this package."""

    def __call__(
        self, paths: TracePaths, limits: Limits | None = None, spread: Spread | None = None
    ) -> RanksVerdict:
        # Late: what tells of one rank is part of this package, too.
        from dftrace_ai.analysis.ranks.verdict import ranks

        return ranks(paths, limits, spread)


sys.modules[__name__].__class__ = _Called
