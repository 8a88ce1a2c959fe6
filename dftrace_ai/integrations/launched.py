"""What a Python below `dftrace run` does when it has imported a framework.

Loaded late: the line in site-packages calls it.
"""

from __future__ import annotations

from dftrace_ai.integrations.auto import auto
from dftrace_ai.run.beginning import Asked, hold
from dftrace_ai.run.run import Run, current_run


class _Launcher:
    """Holds a run for `dftrace run`, to the end of the program: no `finalize` gives it up."""


_launcher = _Launcher()


def begin_run() -> Run:
    """Begin a run unless one is on, with the settings of the environment, and call `auto`."""
    run = current_run() or hold(_launcher, Asked(None, {}))
    auto()
    return run
