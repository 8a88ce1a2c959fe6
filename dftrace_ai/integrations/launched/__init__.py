"""What a Python below `dftrace run` does; the line in site-packages calls it."""

from __future__ import annotations

from dftrace_ai.integrations.launched.beginning import begin_run

__all__ = ["begin_run"]
