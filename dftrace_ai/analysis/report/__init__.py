"""A run on one page, and the figures on it for notebooks.

It needs NumPy. A `Run` reads what it is asked for, and keeps it::

    from dftrace_ai.analysis import Run

    run = Run("out")
    print(run.why.verdict, run.summary.events)
    run.report("report.html")

The sections that other packages add are made of the classes beside it.
"""

from __future__ import annotations

from dftrace_ai.analysis.report.model import ReportFigures, figures_adapter
from dftrace_ai.analysis.report.run import Run
from dftrace_ai.analysis.report.sections import LinePlot, Paragraph, ReportSection, Table

__all__ = [
    "LinePlot",
    "Paragraph",
    "ReportFigures",
    "ReportSection",
    "Run",
    "Table",
    "figures_adapter",
]
