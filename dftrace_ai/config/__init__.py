"""The settings of a run: what they are, and where they come from."""

from __future__ import annotations

from dftrace_ai.config.settings import Config
from dftrace_ai.config.sources import load_config

__all__ = ["Config", "load_config"]
