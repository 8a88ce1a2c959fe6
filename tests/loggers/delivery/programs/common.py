"""Loggers for small programs, and what several of these do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dftrace_ai.loggers import Loggers, make_loggers

STEPS = 20
SOON_S = 30


class NoLoggers:
    """Stands where loggers would, for the same program without them."""

    def __enter__(self) -> NoLoggers:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __iter__(self) -> Any:
        return iter((self, self))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def loggers(
    *trackers: str,
    options: dict[str, Any] | None = None,
    run: str = "run",
    **settings: Any,
) -> Loggers:
    """Loggers to `local` and to others, with a short limit and nothing printed."""
    quiet = {"status_line": False, "system_metrics_s": None}
    config = {"run_name": run, "limit_s": 20.0, **quiet, **settings}
    entries: dict[str, Any] = {"local": {"config": {**config, "in_process": False}}}
    entries |= {name: {"config": {**config, "options": options or {}}} for name in trackers}
    return make_loggers(entries)


def some(logs: Any, steps: int = STEPS) -> None:
    """Log so many iterations."""
    for step in range(steps):
        logs.log_iter({"loss": float(step)})


def misbehave(**settings: Any) -> None:
    """A training beside a tracker that misbehaves."""
    logs = loggers("nasty", **settings)
    some(logs)
    logs.log_epoch()
    print("trained")


def is_killed_beside(how: str) -> None:
    """Killed while its tracker hangs in the midst of a call."""
    logs = loggers("nasty", options={"phase": "log", "how": how}, limit_s=1.0)
    some(logs)
    wait_for(Path("runs/default/run/processes.txt").exists)
    os.kill(os.getpid(), signal.SIGKILL)


def patient(where: Any, *trackers: str) -> Any:
    """Loggers as those of a program whose ending is tried; or none."""
    return loggers("nasty", *trackers) if where else NoLoggers()


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)
