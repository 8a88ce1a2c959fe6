"""System counters: CPU, memory, disk, network and GPU memory as tracks beside the spans."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from dftrace_ai.run.emitting import counter
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.run.late_import import loaded_torch
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.run.run import Run


# Counters by name, each with its series.
Counters = dict[str, dict[str, float]]

LOOK_S = 0.0005


class SystemCounters:
    """A thread that samples the machine at a fixed interval; what it does not tell is left out."""

    def __init__(self, interval_s: float) -> None:
        import psutil

        self._psutil = psutil
        self._process: Any = None
        self._interval_s = interval_s
        # Without locks of Python's: a signal's handler that ends the run while its thread does
        # would wait for itself. Looked up now, as the thread is: gevent may have patched both.
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_started = self._is_stopped = self._is_over = self._is_joined = False
        self._thread = threading.Thread(target=self._loop, name="dftrace-counters", daemon=True)
        self._before: dict[str, int] = {}
        self._readings: dict[str, Callable[[], Counters]] = {
            "CPU": self._cpu,
            "memory": self._memory,
            "disk": self._disk,
            "network": self._network,
            "GPU memory": _gpu_memory,
        }

    def start(self) -> None:
        """Begin sampling."""
        self._read()  # from here on rates and shares are counted
        self._thread.start()
        self._is_started = True

    def stop(self) -> None:
        """Take a last sample and end the thread, if it was started."""
        self._is_stopped = True
        self._calls.put(None)
        while self._is_started and not self._is_over:
            time.sleep(LOOK_S)
        # Once: whoever comes into a `join` of the same thread must not wait for what that has.
        if self._is_started and not self._is_joined:
            self._is_joined = True
            self._thread.join()

    def _loop(self) -> None:
        try:
            while not self._is_stopped:
                self._pause()
                if not self._is_stopped:
                    self.sample()
            self.sample()
        finally:
            self._is_over = True

    def _pause(self) -> None:
        try:
            self._calls.get(timeout=self._interval_s)
        except queue.Empty:
            return

    def sample(self) -> None:
        """Record one sample of everything there is."""
        for name, values in self._read().items():
            counter(name, values)

    def _read(self) -> Counters:
        found: Counters = {}
        for what, reading in list(self._readings.items()):
            try:
                found.update(reading())
            except Exception as error:  # noqa: BLE001, PERF203 - psutil raises anything
                del self._readings[what]
                tell(logging.WARNING, "there are no counters of %s: %s", what, error)
        return found

    def _cpu(self) -> Counters:
        return {
            "cpu %": {
                "system": self._psutil.cpu_percent(),
                "process": self._this_process().cpu_percent(),
            }
        }

    def _memory(self) -> Counters:
        memory = self._psutil.virtual_memory()
        resident = self._this_process().memory_info().rss
        return {"memory bytes": {"used": memory.total - memory.available, "process": resident}}

    def _disk(self) -> Counters:
        disk: Any = self._psutil.disk_io_counters()
        if disk is None:
            return {}
        return self._since_last("disk bytes", read=disk.read_bytes, written=disk.write_bytes)

    def _network(self) -> Counters:
        network: Any = self._psutil.net_io_counters()
        if network is None:
            return {}
        return self._since_last(
            "network bytes", received=network.bytes_recv, sent=network.bytes_sent
        )

    def _this_process(self) -> Any:
        if self._process is None:
            self._process = self._psutil.Process()
        return self._process

    def _since_last(self, name: str, **totals: int) -> Counters:
        values: dict[str, float] = {}
        for series, total in totals.items():
            key = f"{name} {series}"
            values[series] = max(0, total - self._before.get(key, total))
            self._before[key] = total
        return {name: values}


def _gpu_memory() -> Counters:
    """Bytes that torch holds on each GPU; nothing is imported or woken up for it."""
    torch = loaded_torch()
    if torch is None or not torch.cuda.is_initialized():
        return {}
    values: dict[str, float] = {}
    for device in range(torch.cuda.device_count()):
        values[f"allocated {device}"] = torch.cuda.memory_allocated(device)
        values[f"reserved {device}"] = torch.cuda.memory_reserved(device)
    return {"GPU memory bytes": values} if values else {}


_sampling: SystemCounters | None = None


def _begin(run: Run) -> None:
    global _sampling
    # Of the processes of a run, the one that was told to sample is enough.
    if run._config is not None and run._config.system_counters_s is not None:
        _sampling = SystemCounters(run._config.system_counters_s)
        _sampling.start()


def _end(_: Run) -> None:
    if _sampling is not None:
        _sampling.stop()


def _forget(_: Run) -> None:
    # The thread that samples is the parent's.
    global _sampling
    _sampling = None


register(Hook("the counters of the system", _begin, _end, _forget))
