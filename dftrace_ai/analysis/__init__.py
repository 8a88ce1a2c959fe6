"""Reading traces back: files, lines, summaries and checks; needs neither torch nor a recorder.

`Run` is all of it for a notebook; its home is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dftrace_ai.analysis.report.run import Run as Run

__all__ = ["Run"]

# By its name alone: who reads traces without NumPy imports this package, too.
_HOMES = {"Run": "report.run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
