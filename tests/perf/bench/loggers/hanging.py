"""A tracker that hangs when it is to log for the first time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from dftrace_ai.loggers import BaseLogint


class Hanging(BaseLogint):
    """Takes nothing, for ever."""

    name: ClassVar[str] = "hanging"

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Hang."""
        time.sleep(1e6)

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Hang."""
        time.sleep(1e6)


class Quiet(BaseLogint):
    """Takes everything, and keeps nothing."""

    name: ClassVar[str] = "quiet"

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Take numbers."""

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Take a file."""
