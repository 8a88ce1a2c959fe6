"""The iterations that marks and watches count, with a session and without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dftrace_ai.inspect.nonfinite.marks import MARKS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WATCHES", "begin", "end", "stepped"]


class Stepping(Protocol):
    """A watch over a model."""

    def stepped(self) -> None:
        """Take in that a step has ended."""


WATCHES: list[Stepping] = []
"""Those that are on."""


def stepped(step: int | None) -> None:
    """Tell the watches that a step has ended."""
    # The step is the number of the next one; None counts on from the present one.
    for watch in WATCHES:
        watch.stepped()
    MARKS.step = MARKS.step + 1 if step is None else step


def begin(step: int, tell: Callable[[str], None]) -> None:
    """Begin anew, with a session that has a log."""
    MARKS.reset()
    MARKS.step = step
    MARKS.tell = tell


def end() -> None:
    """Take in that the session is over."""
    MARKS.reset()
    MARKS.tell = None
