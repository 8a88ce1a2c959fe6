"""What the header says of the machine, read from the kernel's own files."""

from __future__ import annotations

import os

__all__ = ["host_facts"]

MEMORY = "/proc/meminfo"
PROCESSORS = "/proc/cpuinfo"
TOPOLOGY = "/sys/devices/system/cpu"
# In each processor's folder: which ones share its core. The second is what older kernels have.
SIBLINGS = ("core_cpus_list", "thread_siblings_list")


def host_facts() -> dict[str, object]:
    """Return system, machine and processors, and memory and cores where the kernel tells them.

    Example::

        host_facts()["cpus"]  # 64
    """
    system = os.uname()
    facts: dict[str, object] = {
        "system": f"{system.sysname} {system.release}",
        "machine": system.machine,
        "cpus": os.cpu_count(),
    }
    found = {"memory_bytes": _memory_bytes(), "cores": _cores()}
    return facts | {name: count for name, count in found.items() if count}


def _memory_bytes() -> int:
    for line in _content(MEMORY).splitlines():
        name, _, rest = line.partition(b":")
        words = rest.split()
        if name == b"MemTotal" and words and words[0].isdigit():
            return int(words[0]) * 1024
    return 0


def _cores() -> int:
    try:
        names = os.listdir(TOPOLOGY)  # noqa: PTH208 - of names, and no pathlib
    except OSError:
        names = []
    folders = [
        f"{TOPOLOGY}/{one}/topology" for one in names if one[:3] == "cpu" and one[3:].isdigit()
    ]
    for file in SIBLINGS:
        shared = {_content(f"{folder}/{file}").strip() for folder in folders} - {b""}
        if shared:
            return len(shared)
    return _cores_of_packages(_content(PROCESSORS))


def _cores_of_packages(processors: bytes) -> int:
    """Return the cores of all packages, of which each of their processors tells the number."""
    cores: dict[bytes, int] = {}
    for processor in processors.split(b"\n\n"):
        pairs = (line.partition(b":") for line in processor.splitlines())
        told = {name.strip(): value.strip() for name, _, value in pairs}
        count = told.get(b"cpu cores", b"")
        if b"physical id" in told and count.isdigit():
            cores[told[b"physical id"]] = int(count)
    return sum(cores.values())


def _content(path: str) -> bytes:
    """Return what a file holds; nothing where a container hides it."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - one for each processor
            return file.read()
    except OSError:
        return b""
