"""The drain by itself: a native module that `make bench` builds into build/bench."""

from __future__ import annotations

import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

BUILT = Path(__file__).resolve().parents[4] / "build" / "bench"


def drain_door() -> Any:
    """Return its function `drain(events, compression, level=0, index=True)`, or None where it is not built."""
    for suffix in EXTENSION_SUFFIXES:
        path = BUILT / f"_drain_benchmark{suffix}"
        if path.exists():
            spec = importlib.util.spec_from_file_location("_drain_benchmark", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.drain
    return None
