"""The line that is printed when an epoch ends: where the run stands."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from dftrace_ai.loggers.records import MetricsRecord
from dftrace_ai.loggers.system_metrics import gpu_figures
from dftrace_ai.wording import escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.loggers.records import Point, Record

__all__ = ["StatusLine"]

MOST_METRICS, MOST_LETTERS = 6, 40
GIB = 1 << 30


class StatusLine:
    """Prints a line on standard error for each epoch of a run."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._before_s = time.monotonic()
        self._before = 0

    def show(self, at: Point, records: Sequence[Record], iterations: int, now_s: float) -> None:
        """Print the line of an epoch, of what its routines have made.

        The training goes on meanwhile: there were so many iterations when it ended, which was at a
        time by `time.monotonic`.
        """
        # As it would be read by a person; the stream may be closed by now.
        try:
            sys.stderr.write(f"{self.text(at, records, iterations, now_s)}\n")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            return

    def text(self, at: Point, records: Sequence[Record], iterations: int, now_s: float) -> str:
        """Return the line of an epoch, without its end."""
        done, since_s = iterations - self._before, now_s - self._before_s
        self._before, self._before_s = iterations, now_s
        parts = [f"[{escaped(self._title)}] epoch {at.step}", f"iteration {iterations:,}"]
        if done and since_s > 0:
            parts.append(f"{done / since_s:.3g} it/s")
        means: dict[str, float] = {}
        for record in records:
            if isinstance(record, MetricsRecord):
                for name, value in record.values.items():
                    if name.endswith("/mean"):
                        means[name[len("epoch/") : -len("/mean")]] = value
        for name, value in list(means.items())[:MOST_METRICS]:
            parts.append(f"{escaped(shortened(name, MOST_LETTERS))} {value:.4g}")
        gpu = gpu_figures()
        if gpu:
            used = f"gpu {gpu['gpu/allocated_bytes'] / GIB:.1f} GiB"
            busy = gpu.get("gpu/utilization")
            parts.append(used if busy is None else f"{used} {busy:.0f} %")
        return "  ".join(parts)
