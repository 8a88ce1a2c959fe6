"""Work over which a process dies, called by workers by its name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Dying(NamedTuple):
    """Ends the process that comes to it first, so many times; what `call` makes, else."""

    call: Callable[[Any], Any]
    marks: Path
    times: int

    def __call__(self, given: Any) -> Any:
        for number in range(self.times):
            try:
                (self.marks / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return self.call(given)


def turned(version: str, *, has_reader: bool = True) -> None:
    """Make the worker in which this is called one of another version, or one without the reader."""
    from dftrace_ai.analysis.executors import dask_workers

    dask_workers.__version__ = version
    if has_reader:
        sys.modules["dftrace_ai._reader"] = sys.modules.get(
            "whole reader", sys.modules["dftrace_ai._reader"]
        )
    else:
        sys.modules["whole reader"] = sys.modules["dftrace_ai._reader"]
        sys.modules["dftrace_ai._reader"] = None
