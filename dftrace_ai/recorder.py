"""Whether this installation has the recorder, which is for Linux; what reads traces is for all."""

from __future__ import annotations

import functools
import sys

HOME = "dftrace_ai._native"
SYSTEMS = {"darwin": "macOS", "win32": "Windows"}


@functools.cache
def lack() -> str | None:
    """Return why nothing is recorded here, in a line; None where the recorder is built."""
    loaded = sys.modules.get(HOME)
    if loaded is None:
        from importlib.util import find_spec

        found = find_spec(HOME)
    else:
        found = loaded.__spec__
    if found is None or not (found.origin or "").endswith(".py"):
        return None
    if sys.platform != "linux":
        system = SYSTEMS.get(sys.platform, sys.platform)
        return f"recording is for Linux: on {system} dftrace_ai reads traces, and records nothing"
    return "dftrace_ai was built without its recorder here: it reads traces, and records nothing"
