"""Reading traces back: files, lines, summaries, verdicts and checks; needs no torch, no recorder.

What is listed here is loaded when it is first asked for::

    from dftrace_ai.analysis import Run, diff, open_traces, summarise, why

    run = Run("out")
    print(why(["out"]).verdict, len(run.frame("steps").to_pandas()))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dftrace_ai.analysis.diff.comparing import diff as diff
    from dftrace_ai.analysis.frames import Frame as Frame
    from dftrace_ai.analysis.ranks.verdict import ranks as ranks
    from dftrace_ai.analysis.reading import open_traces as open_traces
    from dftrace_ai.analysis.report.run import Run as Run
    from dftrace_ai.analysis.summary import summarise as summarise
    from dftrace_ai.analysis.whatif.judging import whatif as whatif
    from dftrace_ai.analysis.why.verdict import why as why

__all__ = ["Frame", "Run", "diff", "open_traces", "ranks", "summarise", "whatif", "why"]

# By its name alone: who reads traces without NumPy imports this package, too.
_HOMES = {
    "Frame": "frames",
    "Run": "report.run",
    "open_traces": "reading",
    "summarise": "summary",
}


def __getattr__(name: str) -> Any:
    if name in ("diff", "ranks", "whatif", "why"):
        # Parts of this package, as imports set these names to, which can be called.
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
