"""Describes the machine a run took place on, without its name and without paths."""

from __future__ import annotations

import os
import platform
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def cpu_model() -> str:
    """Return the processor's name as the kernel gives it."""
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _is_virtual() -> bool:
    flags = next((line for line in _lines(Path("/proc/cpuinfo")) if line.startswith("flags")), "")
    return " hypervisor" in flags


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def _python_build() -> str:
    # Bare Python is what most ratios are taken against, and profile-guided builds run it faster.
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return "profile-guided" if "--enable-optimizations" in arguments else "not profile-guided"


def describe() -> dict[str, str]:
    """Return what a reader needs to place the figures, by name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    clock = _lines(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource"))
    load = os.getloadavg()
    return {
        "processor": cpu_model() + (" (virtual machine)" if _is_virtual() else ""),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "clock source": clock[0] if clock else "unknown",
        "C library": " ".join(platform.libc_ver()),
        "python": f"{platform.python_version()}, {_python_build()}",
        "torch": _package("torch"),
        "load when begun": f"{load[0]:.2f} {load[1]:.2f} {load[2]:.2f}",
    }
