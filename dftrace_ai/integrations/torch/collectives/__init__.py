"""The part `collectives`: what torch.distributed does, whoever asks for it."""

from dftrace_ai.integrations.torch.collectives.seam import install

__all__ = ["install"]
