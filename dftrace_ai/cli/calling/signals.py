"""SIGTERM and SIGHUP end a command in order: what it has put aside it takes away."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["STATUS", "end_by", "end_in_order"]

ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

STATUS: Final = 128
"""A command that is unwound has this and the number of the signal as its status until it ends."""


def end_in_order() -> None:
    """Unwind the command when such a signal comes, and then end by it.

    To be called before anything else that has work to do at the end is loaded. What this process
    was started to ignore it goes on ignoring.
    """
    owner = os.getpid()
    came: list[int] = []

    def unwind(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:
            end_by(number)  # a forked child, which has put nothing aside
        # Once is enough, and who is impatient sends it to all of the group again.
        for each in ENDING:
            if signal.getsignal(each) is unwind:
                signal.signal(each, signal.SIG_IGN)
        came.append(number)
        sys.exit(STATUS + number)

    def end() -> None:
        if came and os.getpid() == owner:
            end_by(came[0])

    # Exit handlers run in the opposite order.
    atexit.register(end)
    for each in ENDING:
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, unwind)


def end_by(number: int) -> None:
    """End by a signal, at once; what is not written yet may have nobody who reads it.

    Args:
        number: the signal's.
    """
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
