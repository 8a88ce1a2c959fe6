"""System counters: CPU, memory, disk, network and GPUs as tracks beside the spans.

Apart: a hook that registers itself, and that no other file needs.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai import _native
from dftrace_ai.run.emitting import counter
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.run.late_import import loaded_torch
from dftrace_ai.run.run import LAUNCH_VARIABLE
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dftrace_ai.run.run import Run


# Counters by name, each with its series.
Counters = dict[str, dict[str, float]]

LOOK_S = 0.0005
OF_RANKS_S: Final = 10.0
WAYS: Final = ("read", "write")
BLOCK_DEVICES: Final = "/sys/block"
# Half of what the system counts the time of processors by: of less nothing is known.
LEAST_PASSED_S: Final = 0.005
# Where there is an NVIDIA driver: on Linux, in a virtual machine of Windows.
DRIVERS: Final = ("/dev/nvidiactl", "/dev/dxg")
# What slows a GPU's clocks down, by the bits of NVML's clocks-event reasons (nvml.h of CUDA 12,
# nvmlClocksEventReason*): power limits in software and hardware, heat in both.
POWER_REASONS: Final = 0x4 | 0x80
HEAT_REASONS: Final = 0x20 | 0x40


class SystemCounters:
    """A thread that samples the machine at a fixed interval; what it does not tell is left out.

    A sample for which `is_wanted` does not hold is none. `memory_alone`: of nothing else.
    """

    def __init__(
        self, interval_s: float, is_wanted: Callable[[], object], *, memory_alone: bool = False
    ) -> None:
        self._is_wanted = is_wanted
        self._psutil: Any = None
        self._process: Any = None
        self._interval_s = interval_s
        # Without locks of Python's: a signal's handler that ends the run while its thread does
        # would wait for itself. Looked up now, as the thread is: gevent may have patched both.
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_started = self._is_stopped = self._is_over = self._is_joined = False
        self._thread = threading.Thread(target=self._loop, name="dftrace-counters", daemon=True)
        self._before: dict[str, int] = {}
        self._used: dict[str, tuple[float, float]] = {}
        self._processors: tuple[float, float, float] | None = None
        self._whole: dict[str, bool] = {}
        self._readings: dict[str, Callable[[], Counters]] = {
            "memory": self._memory,
            "GPU memory": _gpu_memory,
        }
        if not memory_alone:
            rates = {"CPU": self._cpu, "disk": self._disk, "network": self._network}
            gpus = _Gpus.found()
            self._readings |= rates if gpus is None else {**rates, "GPUs": gpus.read}
            self._read()  # from here on rates and shares are counted

    def start(self) -> None:
        """Begin sampling."""
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
        if not self._is_wanted():
            return
        for name, values in self._read().items():
            counter(name, values)

    def _read(self) -> Counters:
        import psutil

        self._psutil = psutil
        found: Counters = {}
        for what, reading in list(self._readings.items()):
            try:
                found.update(reading())
            except Exception as error:  # noqa: BLE001, PERF203 - psutil raises anything
                del self._readings[what]
                tell(logging.WARNING, "there are no counters of %s: %s", what, error)
        return found

    def _cpu(self) -> Counters:
        # Not by psutil's percents: the first of each thread has no share of idleness in it.
        times = self._psutil.cpu_times()
        waits = getattr(times, "iowait", 0.0)  # Linux alone tells
        # What guests use is in user's and nice's, too.
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        now = sum(times) - guests, times.idle, waits
        before, self._processors = self._processors or now, now
        passed, idle, waits = (max(0.0, b - a) for a, b in zip(before, now, strict=True))
        values = {"process": self._share("process", time.process_time())}
        if passed >= LEAST_PASSED_S:
            values["system"] = round(max(0.0, 100.0 - 100.0 * (idle + waits) / passed), 1)
            values["io wait"] = round(100.0 * waits / passed, 1)
        used_s = _native.children_seconds()
        if used_s is not None:
            values["children"] = self._share("children", used_s)
        return {"cpu %": values}

    def _share(self, whose: str, used_s: float) -> float:
        """Return the percent of a processor that somebody has used since he was asked last."""
        at_s = time.monotonic()
        before_s, before_at_s = self._used.get(whose, (used_s, at_s))
        self._used[whose] = used_s, at_s
        return round(100 * max(0.0, used_s - before_s) / max(at_s - before_at_s, 1e-3), 1)

    def _memory(self) -> Counters:
        memory = self._psutil.virtual_memory()
        resident = self._this_process().memory_info().rss
        return {"memory bytes": {"used": memory.total - memory.available, "process": resident}}

    def _disk(self) -> Counters:
        # Its bookkeeping of counts that begin anew costs as much as they do; below none falls. For
        # their sum it looks for each of the names in /sys, every time.
        parts: Any = self._psutil.disk_io_counters(perdisk=True, nowrap=False)
        disks = [one for name, one in parts.items() if self._is_whole(name)]
        if not disks:
            return {}
        read, written = (sum(getattr(one, f"{way}_bytes") for one in disks) for way in WAYS)
        return self._since_last("disk bytes", read=read, written=written)

    def _is_whole(self, disk: str) -> bool:
        """Whether it is a disk and no part of one, which is counted in it."""
        if disk not in self._whole:
            name = disk.replace("/", "!")  # as that of cciss/c0d0 is written there
            self._whole[disk] = os.access(f"{BLOCK_DEVICES}/{name}", os.F_OK)
        return self._whole[disk]

    def _network(self) -> Counters:
        network: Any = self._psutil.net_io_counters(nowrap=False)
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
    cuda, values = _cuda(), {}
    for device in range(cuda.device_count() if cuda else 0):
        values[f"allocated {device}"] = cuda.memory_allocated(device)
        values[f"reserved {device}"] = cuda.memory_reserved(device)
    return {"GPU memory bytes": values} if values else {}


def _cuda() -> Any:
    """Return what torch knows of GPUs; None where this process does not use one."""
    cuda = getattr(loaded_torch(), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


class _Gpus:
    """The GPUs on which this process holds memory, by NVIDIA's management library."""

    def __init__(self, nvml: Any) -> None:
        nvml.nvmlInit()
        self._nvml = nvml
        self._handles: dict[int, Any] = {}

    @classmethod
    def found(cls) -> _Gpus | None:
        """Return what there is; None where no GPU is, or nothing that reads it."""
        if not any(map(os.path.exists, DRIVERS)):
            return None
        try:
            import pynvml
        except ImportError:
            mend = "pip install 'dftrace_ai[gpu]' (nvidia-ml-py)"
            tell(logging.WARNING, "use, power and clocks of GPUs are not sampled: %s", mend)
            return None
        try:
            return cls(pynvml)
        except pynvml.NVMLError as error:
            tell(logging.WARNING, "use, power and clocks of GPUs are not sampled: %s", error)
            return None

    def read(self) -> Counters:
        """Return use, power, temperature, clocks, and what holds these down."""
        found: Counters = {}
        for device in _devices_held():
            for name, series, value in self._figures(device):
                found.setdefault(name, {})[f"{series} {device}".lstrip()] = value
        return found

    def _figures(self, device: int) -> Iterator[tuple[str, str, float]]:
        nvml, gpu = self._nvml, self._handle(device)
        for name, series, read in (
            ("GPU %", "busy", lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
            ("GPU W", "", lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
            ("GPU C", "", lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
            ("GPU MHz", "", lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
        ):
            value = self._told(read)
            if value is not None:
                yield name, series, value
        reasons = self._told(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
        if reasons is not None:
            yield "GPU throttled", "power", int(bool(reasons & POWER_REASONS))
            yield "GPU throttled", "heat", int(bool(reasons & HEAT_REASONS))

    def _told(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound):
            return None  # a part of a GPU, one in a laptop and an older driver have not all

    def _handle(self, device: int) -> Any:
        if device not in self._handles:
            uuid = loaded_torch().cuda.get_device_properties(device).uuid
            self._handles[device] = self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        return self._handles[device]


def _devices_held() -> list[int]:
    """Return the GPUs on which torch holds memory for this process; nothing is woken up for it."""
    cuda = _cuda()
    return [n for n in range(cuda.device_count() if cuda else 0) if cuda.memory_reserved(n)]


_sampling: SystemCounters | None = None


def _begin(run: Run) -> None:
    global _sampling
    # Of the processes of a run, the one that was told to sample is enough.
    if run._config is not None and run._config.system_counters_s is not None:
        # A program that was launched may be none that records anything, as a launcher of ranks is.
        is_wanted = _native.stats if LAUNCH_VARIABLE in os.environ else lambda: True
        _sampling = SystemCounters(run._config.system_counters_s, is_wanted)
        _sampling.start()


def sample_rank(run: Run | None) -> None:
    """Sample the memory of what is a rank of several now and then, unless it was said how often."""
    global _sampling
    given = run and run._config and "system_counters_s" in run._config._values_given()
    if run is None or run._config is None or given or _sampling is not None:
        return
    world_size = run._settings["rank"]["world_size"] if run._settings else None
    launched = isinstance(world_size, int) and world_size > 1
    _sampling = SystemCounters(OF_RANKS_S, lambda: launched or _is_rank(), memory_alone=True)
    _sampling.start()


def _is_rank() -> bool:
    distributed: Any = getattr(loaded_torch(), "distributed", None)
    is_begun = getattr(distributed, "is_initialized", None)
    try:
        return bool(is_begun and is_begun() and distributed.get_world_size() > 1)
    except (RuntimeError, ValueError):  # its groups are taken down just now
        return False


def _end(_: Run) -> None:
    global _sampling
    if _sampling is not None:
        _sampling.stop()
        _sampling = None


def _forget(_: Run) -> None:
    # The thread that samples is the parent's.
    global _sampling
    _sampling = None


register(Hook("the counters of the system", _begin, _end, _forget))
