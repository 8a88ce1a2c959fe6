"""How deep each thread is inside of what is recorded once only."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["Depth", "depth", "leave_hooked"]


class Depth(threading.local):
    """Of this thread.

    Attributes:
        forward: modules within modules that are recorded.
        backward: 1 within a backward pass that is recorded.
        optimizer: 1 within an optimizer's step that is recorded.
        waiting: 1 while a loader is asked for a batch.
        hooked: an optimizer whose step is on by its hooks, and the span of it.
        model: the one whose forward is on, where modules within it are recorded.
    """

    forward: int = 0
    backward: int = 0
    optimizer: int = 0
    waiting: int = 0
    hooked: tuple[Any, Any] | None = None
    model: Any = None


depth = Depth()


def leave_hooked() -> None:
    """End an optimizer's step that its hooks told of, and that has raised: torch tells no end."""
    if depth.hooked is not None:
        _, span = depth.hooked
        depth.hooked = None
        if span is not None:
            span.end_unless_empty()
