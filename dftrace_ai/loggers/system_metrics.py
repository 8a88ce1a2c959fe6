"""The machine beside the metrics: its GPU; CPU, memory, disk and network, now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.records import MetricsRecord, Point
from dftrace_ai.run.late_import import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.loggers.records import Record


def gpu_figures() -> dict[str, float]:
    """Return memory in bytes and utilisation in percent of this process's GPU; nothing without."""
    torch = loaded_torch()
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return {}
    values = {
        "gpu/allocated_bytes": float(torch.cuda.memory_allocated()),
        "gpu/reserved_bytes": float(torch.cuda.memory_reserved()),
        "gpu/peak_bytes": float(torch.cuda.max_memory_allocated()),
    }
    try:
        values["gpu/utilization"] = float(torch.cuda.utilization())
    except (ImportError, RuntimeError, OSError, AssertionError):
        # Without NVIDIA's library for Python there is no such figure.
        return values
    return values


class SystemMetrics:
    """Samples the machine at a fixed interval, when it is asked for what is due.

    `moment` returns the place in the trace; None where no tracker writes there.
    """

    def __init__(self, interval_s: float, moment: Callable[[], Any] | None) -> None:
        self._interval_s = interval_s
        self._moment = moment
        self._began_s = time.monotonic()
        self._due_s = self._began_s + interval_s
        self._process: Any = None
        self._before: dict[str, float] = {}

    def due(self) -> Record | None:
        """Return a sample where one is due, else None."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return None
        self._due_s = now_s + self._interval_s
        moment = None if self._moment is None else self._moment()
        at = Point(round(now_s - self._began_s), "time", time.time(), moment)
        return MetricsRecord({f"system/{name}": v for name, v in self._read(now_s).items()}, at)

    def left_s(self) -> float:
        """Return seconds until a sample is due."""
        return self._due_s - time.monotonic()

    def _read(self, now_s: float) -> dict[str, float]:
        import psutil

        found: dict[str, float] = {}
        readings: tuple[Callable[[], dict[str, float]], ...] = (
            lambda: {"cpu_percent": psutil.cpu_percent()},
            lambda: {"memory_percent": psutil.virtual_memory().percent},
            self._of_process,
            lambda: self._rates("disk", psutil.disk_io_counters(), now_s),
            lambda: self._rates("network", psutil.net_io_counters(), now_s),
            gpu_figures,
        )
        for reading in readings:
            try:
                found |= reading()
            except Exception:  # noqa: BLE001, PERF203, S112 - a host that hides it; nothing to plot
                continue
        return found

    def _of_process(self) -> dict[str, float]:
        import psutil

        if self._process is None:
            self._process = psutil.Process()
        return {
            "process_cpu_percent": self._process.cpu_percent(),
            "process_memory_bytes": float(self._process.memory_info().rss),
        }

    def _rates(self, what: str, totals: Any, now_s: float) -> dict[str, float]:
        if totals is None:
            return {}
        found = {}
        since_s = now_s - self._before.get(f"{what} at", self._began_s)
        self._before[f"{what} at"] = now_s
        for name in ("read_bytes", "write_bytes", "bytes_recv", "bytes_sent"):
            total = getattr(totals, name, None)
            if total is not None:
                before = self._before.get(f"{what} {name}", total)
                self._before[f"{what} {name}"] = total
                found[f"{what}_{name}_per_s"] = max(0.0, total - before) / max(since_s, 1e-3)
        return found
