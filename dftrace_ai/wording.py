"""How messages put a number and its noun."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``counted(2, "line") == "2 lines"``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
