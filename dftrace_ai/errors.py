"""The exceptions that dftrace_ai raises, all under one base."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@contextmanager
def readable(what: object) -> Iterator[None]:
    """Name what was read where the operating system refuses it, by a TraceError."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"{what}: cannot be read: {error.strerror}") from error


def missing_package(package: str, what: str = "this", extra: str = "analysis") -> DftraceError:
    """Return what to raise where a package of an extra is not installed."""
    return DftraceError(
        f"{what} needs {package}; install it with: pip install 'dftrace-ai[{extra}]'"
    )


@contextmanager
def needs_numpy(what: str = "this") -> Iterator[None]:
    """Tell in a line, by a DftraceError, how to install NumPy where the block does not find it."""
    try:
        yield
    except ImportError as error:
        if error.name != "numpy":
            raise
        raise missing_package("NumPy", what) from error
