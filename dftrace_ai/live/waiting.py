"""Where ranks wait for each other: in collectives, and in a backward pass that may hold one."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from dftrace_ai.trace_format.names_and_phases import COLLECTIVES

if TYPE_CHECKING:
    from dftrace_ai.live.model import RankStatus
    from dftrace_ai.live.verdict import Finding

__all__ = ["Waiting", "waiting_in", "waiting_of"]

# Data-parallel wrappers reduce the gradients inside of it, where no span shows.
BACKWARD = "compute.backward"


class Waiting(IntEnum):
    """Whether one who is in a span waits for the other ranks; who does so least is looked at."""

    SURELY = 0
    PERHAPS = 1
    NOT = 2


def waiting_in(category: str, label: str) -> Waiting:
    """Return what a span means for who is in it, outside of all spans inside.

    Args:
        category: of the innermost open span, empty for none.
        label: its category and name, such as ``compute.backward``.
    """
    if category == COLLECTIVES:
        return Waiting.SURELY
    backward = label == BACKWARD or label.startswith(f"{BACKWARD}.")
    return Waiting.PERHAPS if backward else Waiting.NOT


def waiting_of(process: RankStatus) -> Waiting:
    """Return whether a rank waits: in any of its threads, since gradients may be reduced in one."""
    return min(
        (waiting_in(t.place[-1].cat, t.place[-1].label) for t in process.threads if t.place),
        default=Waiting.NOT,
    )


def waiting_at(one: Finding) -> Waiting:
    """Return whether the thread of a finding waits."""
    return waiting_in(one.category, one.path[-1] if one.path else "")
