"""The settings of a run: what they are, and where they come from."""

from __future__ import annotations

from dftrace_ai.config.loading import load_config
from dftrace_ai.config.model import Config

__all__ = ["Config", "load_config"]
