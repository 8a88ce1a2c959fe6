"""Annotate AI training: spans, counters and tensor statistics that open in Perfetto."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dftrace_ai._version import __version__
from dftrace_ai.errors import ConfigError, DftraceError, LogDirectoryError, TraceError

if TYPE_CHECKING:
    from dftrace_ai.annotation.tree import ai as ai
    from dftrace_ai.compat.functions import dft_fn as dft_fn
    from dftrace_ai.compat.logger import dftracer as dftracer
    from dftrace_ai.config.settings import Config as Config
    from dftrace_ai.integrations.auto import auto as auto
    from dftrace_ai.run.lifecycle import dump as dump
    from dftrace_ai.run.lifecycle import finalize as finalize
    from dftrace_ai.run.lifecycle import initialize as initialize
    from dftrace_ai.run.lifecycle import tracing as tracing
    from dftrace_ai.run.run import Run as Run

__all__ = [
    "Config",
    "ConfigError",
    "DftraceError",
    "LogDirectoryError",
    "Run",
    "TraceError",
    "__version__",
    "ai",
    "auto",
    "dft_fn",
    "dftracer",
    "dump",
    "finalize",
    "initialize",
    "tracing",
]

# Traces are read where the recorder is not built or cannot be loaded, and who only reads
# does not wait for it: each name comes with its home when it is first asked for.
_HOMES = {
    "Config": "config.settings",
    "Run": "run.run",
    "ai": "annotation.tree",
    "auto": "integrations.auto",
    "dft_fn": "compat.functions",
    "dftracer": "compat.logger",
    "dump": "run.lifecycle",
    "finalize": "run.lifecycle",
    "initialize": "run.lifecycle",
    "load_ipython_extension": "notebook.cells",
    "tracing": "run.lifecycle",
    "unload_ipython_extension": "notebook.cells",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _MovedModule(ModuleType):
    """A module under the documented name that it had before it moved."""

    def __init__(self, name: str, home: str) -> None:
        super().__init__(f"{__name__}.{name}", f"Moved to `{__name__}.{home}`.")
        self.__file__ = __file__
        self._home = f"{__name__}.{home}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(self._home), name)


recovery = _MovedModule("recovery", "spools.recovery")
sys.modules[recovery.__name__] = recovery
