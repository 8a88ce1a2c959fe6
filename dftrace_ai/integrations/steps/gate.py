"""Which steps are recorded, and whether anything is now."""

from __future__ import annotations

from dataclasses import dataclass

from dftrace_ai.run.emitting import Gate

__all__ = ["ALL_STEPS", "Gate", "StepRange"]


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

    @property
    def reach(self) -> tuple[int, int]:
        """The first and the one behind the last, where none is the least and the greatest."""
        if not self.is_a_part:
            return -(1 << 63), (1 << 63) - 1
        return self.first, (1 << 63) - 1 if self.end is None else self.end

    @classmethod
    def parsed(cls, text: str | None) -> StepRange:
        """Return the range that ``A:B``, ``A:``, ``:B`` or None for all steps names."""
        first, _, end = (text or ":").partition(":")
        return cls(int(first or 0), int(end) if end else None)


ALL_STEPS = StepRange()
