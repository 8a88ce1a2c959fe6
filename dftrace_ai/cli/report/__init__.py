"""`dftrace report`: a run on one page."""

from __future__ import annotations

from dftrace_ai.cli.report.command import command

__all__ = ["command"]
