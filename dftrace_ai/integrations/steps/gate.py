"""Which steps are recorded, and whether anything is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ALL_STEPS", "Gate", "StepRange"]


class Gate:
    """Whether anything is recorded now: what a part asks before each span.

    Attributes:
        live: the parts are installed. A wrapper that outlives them, because somebody has laid
            his own over it, does nothing any more.
        recording: they are, and the step that is on is one of those that are asked for.
        shared: the same for workers of loaders, in memory that they share; None where all steps
            are recorded.
    """

    __slots__ = ("live", "recording", "shared")

    def __init__(self) -> None:
        self.live = False
        self.recording = False
        self.shared: Any = None


@dataclass(frozen=True)
class StepRange:
    """Steps from `first` on, up to `end` without it; counted from 0.

    Attributes:
        first: the first one.
        end: the one behind the last; None for all that come.
    """

    first: int = 0
    end: int | None = None

    def __contains__(self, step: int) -> bool:
        return step >= self.first and (self.end is None or step < self.end)

    @property
    def is_a_part(self) -> bool:
        """Whether there are steps that are not in it."""
        return self != ALL_STEPS

    @classmethod
    def parsed(cls, text: str | None) -> StepRange:
        """Return the range that ``A:B``, ``A:``, ``:B`` or None for all steps names."""
        first, _, end = (text or ":").partition(":")
        return cls(int(first or 0), int(end) if end else None)


ALL_STEPS = StepRange()
