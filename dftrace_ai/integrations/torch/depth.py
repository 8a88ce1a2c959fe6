"""How deep each thread is inside of what is recorded once only."""

from __future__ import annotations

import threading
from typing import Any

from dftrace_ai.run.emitting import ThreadCounts

__all__ = ["depth", "kept", "leave_hooked"]

depth = ThreadCounts()
"""Of this thread.

Attributes:
    forward: modules within modules that are recorded.
    backward: 1 within a backward pass that is recorded.
    optimizer: 1 within an optimizer's step that is recorded.
    waiting: 1 while a loader is asked for a batch.
    hooked: 1 within an optimizer's step that its hooks have told of.
    computing: 1 within what a framework has made one function of, and is recorded as a whole.
"""


class Kept(threading.local):
    """Of this thread.

    Attributes:
        hooked: an optimizer whose step is on by its hooks, and the span of it.
        model: the one whose forward is on, where modules within it are recorded.
    """

    hooked: tuple[Any, Any] | None = None
    model: Any = None


kept = Kept()


def leave_hooked() -> None:
    """End an optimizer's step that its hooks told of, and that has raised: torch tells no end."""
    hooked, kept.hooked = kept.hooked, None
    depth.hooked = 0
    if hooked is not None and hooked[1] is not None:
        hooked[1].end_unless_empty()
