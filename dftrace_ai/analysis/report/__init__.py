"""A run on one page, and the figures on it for notebooks.

It needs NumPy. A `Run` reads what it is asked for, and keeps it::

    from dftrace_ai.analysis import Run

    run = Run("out")
    print(run.why.verdict, run.summary.events)
    run.report("report.html")
"""

from __future__ import annotations

from dftrace_ai.analysis.report.model import ReportFigures, figures_adapter
from dftrace_ai.analysis.report.run import Run

__all__ = ["ReportFigures", "Run", "figures_adapter"]
