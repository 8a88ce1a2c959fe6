"""What `dftrace demo --json` prints, as a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dftrace_ai.analysis.why.model import Verdict  # noqa: TC001 - pydantic evaluates it

__all__ = ["DemoReport"]


@dataclass(frozen=True)
class DemoReport:
    """What `dftrace demo --json` prints.

    Attributes:
        losses: mean cross entropy of each epoch.
        accuracies: share of the test pictures told right after each epoch.
        steps: batches trained in all.
        traces: the files that were written.
        verdict: as of `dftrace why`; null where nothing was recorded.
        format: version of this form; it grows when a member goes or means something else.
    """

    losses: list[float]
    accuracies: list[float]
    steps: int
    traces: list[str]
    verdict: Verdict | None
    format: Literal[1] = 1
