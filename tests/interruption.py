"""Handlers of signals that come at a place that the test chooses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType


class Interruption:
    """Calls something at the n-th of the places where the interpreter calls handlers of signals.

    These are the beginnings of functions and the returns from calls, in some modules. Who has
    called `initialize`, or entered a block, has the run when that returns: it is no place of ours.

    Args:
        place: the number of the place, from 1.
        action: what the handler does.
        modules: the paths of their sources.
    """

    def __init__(self, place: int, action: Callable[[], object], modules: set[Path]) -> None:
        self.left = place
        self.action = action
        self.sources = set(map(str, modules))

    def __enter__(self) -> Interruption:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, argument: object) -> None:
        # First what is cheap: it is asked at each call of the interpreter.
        if event == "c_call" or frame.f_code.co_filename not in self.sources:
            return
        given = event == "return" and frame.f_code.co_name in ("initialize", "__enter__")
        # From 3.14 on also when `with` has taken a lock, which nobody gives back then: no place of ours.
        given |= event == "c_return" and getattr(argument, "__name__", "") == "__enter__"
        if not given:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                self.action()

    @property
    def came(self) -> bool:
        """Whether there were so many places."""
        return self.left <= 0
