"""Annotate AI training: spans, counters and tensor statistics that open in Perfetto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai import runtime
from dftrace_ai._version import __version__
from dftrace_ai.dft_fn import dft_fn
from dftrace_ai.errors import ConfigError, DftraceError, LogDirectoryError, TraceError
from dftrace_ai.runtime import Run, dump, finalize, initialize, tracing
from dftrace_ai.tracer import dftracer
from dftrace_ai.tree import ai

if TYPE_CHECKING:
    from dftrace_ai.config import Config as Config
    from dftrace_ai.config import load_config as load_config

__all__ = [
    "Config",
    "ConfigError",
    "DftraceError",
    "LogDirectoryError",
    "Run",
    "TraceError",
    "__version__",
    "ai",
    "dft_fn",
    "dftracer",
    "dump",
    "finalize",
    "initialize",
    "load_config",
    "tracing",
]


def __getattr__(name: str) -> Any:
    # pydantic takes longer to import than everything else: only who configures pays for it.
    if name in ("Config", "load_config"):
        from dftrace_ai import config

        return getattr(config, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


runtime.join_run_of_parent()
