"""Torch, where the program has loaded it: nothing here loads it, or waits until it is loaded."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["loaded_torch"]


def loaded_torch() -> Any:
    """Return torch; None where it is not imported, or another thread is about to import it.

    Of a module that is being imported only a part is there, and nobody has a tensor yet.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return None
    return torch
