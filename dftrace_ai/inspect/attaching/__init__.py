"""Layers of plain PyTorch modules under inspection: statistics, emulation, custom features."""

from dftrace_ai.inspect.attaching.fp8 import fp8_autocast
from dftrace_ai.inspect.attaching.model import AttachedModel, attach

__all__ = ["AttachedModel", "attach", "fp8_autocast"]
