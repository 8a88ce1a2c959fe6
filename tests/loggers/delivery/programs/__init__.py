"""Small programs that log, each to be run in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

__all__ = ["named"]

# All of them before the first fork, so that each is imported once.
HOMES = [
    import_module(f"programs.{name}")
    for name in ("common", "endings", "forks", "circumstances", "data")
]


def named(name: str) -> Callable[..., None]:
    """The program of a name."""
    for home in HOMES:
        found = getattr(home, name, None)
        if found is not None:
            return found
    raise LookupError(name)
