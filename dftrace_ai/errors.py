"""The exceptions that dftrace_ai raises, all under one base."""

from __future__ import annotations

__all__ = ["ConfigError", "DftraceError", "LogDirectoryError", "TraceError"]


class DftraceError(Exception):
    """Base of every error that dftrace_ai raises on purpose.

    Catch it to treat any of them alike::

        try:
            dftrace_ai.initialize()
        except dftrace_ai.DftraceError as error:
            print(f"training goes on untraced: {error}")
    """


class ConfigError(DftraceError, ValueError):
    """A setting is unknown or has a value that is not accepted.

    The message names the argument, the environment variable or the line of the
    file that the value came from, and what is accepted there.
    """


class LogDirectoryError(DftraceError, OSError):
    """The directory of the trace cannot be created or written."""


class TraceError(DftraceError):
    """A trace file is missing, unreadable or not a trace; the message names it."""
