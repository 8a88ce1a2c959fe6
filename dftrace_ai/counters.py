"""System counters: CPU, memory, disk, network and GPU memory as tracks beside the spans."""

from __future__ import annotations

import sys
import threading
from typing import Any

from dftrace_ai import _native

__all__ = ["SystemCounters"]


class SystemCounters:
    """A thread that samples the machine at a fixed interval.

    Args:
        interval_s: seconds between two samples.

    Example::

        counters = SystemCounters(1.0)
        counters.start()
        counters.stop()
    """

    def __init__(self, interval_s: float) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="dftrace-counters", daemon=True)
        self._before: dict[str, int] = {}

    def start(self) -> None:
        """Begin sampling."""
        self._process.cpu_percent()
        self._psutil.cpu_percent()
        self._rates()
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and end the thread."""
        self._stop.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sample()
        self.sample()

    def sample(self) -> None:
        """Record one sample of everything there is."""
        memory = self._psutil.virtual_memory()
        with self._process.oneshot():
            resident = self._process.memory_info().rss
            own_cpu = self._process.cpu_percent()
        _native.counter("cpu %", {"system": self._psutil.cpu_percent(), "process": own_cpu})
        _native.counter(
            "memory bytes", {"used": memory.total - memory.available, "process": resident}
        )
        for name, values in self._rates().items():
            _native.counter(name, values)
        gpus = _gpu_memory()
        if gpus:
            _native.counter("GPU memory bytes", gpus)

    def _rates(self) -> dict[str, dict[str, float]]:
        """Bytes since the last sample; a machine may have no disk or no network to tell of."""
        found: dict[str, dict[str, int]] = {}
        disk: Any = self._psutil.disk_io_counters()
        if disk is not None:
            found["disk bytes"] = {"read": disk.read_bytes, "written": disk.write_bytes}
        network: Any = self._psutil.net_io_counters()
        if network is not None:
            found["network bytes"] = {"received": network.bytes_recv, "sent": network.bytes_sent}
        rates: dict[str, dict[str, float]] = {}
        for name, values in found.items():
            for series, total in values.items():
                key = f"{name} {series}"
                before = self._before.get(key, total)
                self._before[key] = total
                rates.setdefault(name, {})[series] = max(0, total - before)
        return rates


def _gpu_memory() -> dict[str, float]:
    """Bytes that torch holds on each GPU; nothing is imported or woken up for it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    values: dict[str, float] = {}
    for device in range(torch.cuda.device_count()):
        values[f"allocated {device}"] = torch.cuda.memory_allocated(device)
        values[f"reserved {device}"] = torch.cuda.memory_reserved(device)
    return values
