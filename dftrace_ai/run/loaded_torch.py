"""Torch, where the program has loaded it: nothing here loads it, or waits until it is loaded."""

from __future__ import annotations

import sys
from typing import Any


def loaded_torch() -> Any:
    """Return torch; None where it is not imported, or another thread is about to import it."""
    # Of a module that is being imported only a part is there, and nobody has a tensor yet.
    torch: Any = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return None
    return torch


def is_older_than(major: int, minor: int) -> bool:
    """Tell whether torch is here, be it in the middle of its import, in a version before this."""
    version = getattr(sys.modules.get("torch"), "__version__", None)
    if version is None:
        return False
    parts = str(version).partition("+")[0].split(".")[:2]
    return tuple(int(part) for part in parts if part.isdecimal()) < (major, minor)
