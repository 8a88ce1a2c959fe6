"""What the sampling of the machine writes, held against programs and a driver whose figures are known."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import RunScript

BURN = "import time; [None for _ in iter(lambda: time.process_time() < 0.2, False)]"

# By /proc a child's figures are hundredths of a second.
CHILDREN = f"""
import subprocess, sys, threading, time
import dftrace_ai

def start(*words):
    children.append(subprocess.Popen([sys.executable, *words], stdin=-1, stdout=-1))

def wait_for(child):
    child.stdout.readline()

children = []
began = time.monotonic()
dftrace_ai.initialize(system_counters_s=3600)
# One that a thread has started and goes on when that has ended, and one that was waited for.
code = {BURN!r} + "; print(flush=True); input()"
maker = threading.Thread(target=start, args=("-c", code))
maker.start(); maker.join()
wait_for(children[0])
gone = subprocess.run([sys.executable, "-c", {BURN!r}])
dftrace_ai.finalize()
print(time.monotonic() - began)
children[0].communicate(b"\\n")
"""


def test_what_a_process_and_its_children_use(run_script: RunScript) -> None:
    done = run_script(CHILDREN)
    (lasted_s,) = done.said
    (sample,) = [e for e in done.trace().of("C") if e.name == "cpu %"]
    assert sample.args.keys() == {"system", "io wait", "process", "children"}
    assert 0 <= sample.args["system"] <= 100
    assert 0 <= sample.args["io wait"] <= 100
    # 0.2 s each, and what their interpreters took to start: no more than all processors have.
    assert sample.args["children"] * lasted_s / 100 >= 0.38


# Of 8 s that processors had, 5 were idle and 1 waited; a guest's 2 are the user's, too. The process used 4.
PROCESSORS = """
import collections, time, psutil, dftrace_ai
Times = collections.namedtuple("Times", "user nice system idle iowait guest guest_nice")
readings = [Times(10, 0, 5, 100, 7, 3, 0), Times(12, 0, 5, 105, 8, 5, 0)]
psutil.cpu_times = lambda *_, **__: readings.pop(0) if len(readings) > 1 else readings[0]
used_s = [7.0, 11.0]
time.process_time = lambda: used_s.pop(0) if len(used_s) > 1 else used_s[0]
began = time.monotonic()
with dftrace_ai.tracing(system_counters_s=3600):
    pass
print(time.monotonic() - began)
"""


def test_the_first_sample_is_of_the_time_since_the_run_began(run_script: RunScript) -> None:
    done = run_script(PROCESSORS)
    (lasted_s,) = done.said
    (sample,) = [e for e in done.trace().of("C") if e.name == "cpu %"]
    assert (sample.args["system"], sample.args["io wait"]) == (25.0, 12.5)
    assert sample.args["process"] * lasted_s / 100 >= 3.99


# Two disks, of which one has a part; a program that counted the parts would count them twice.
DISKS = """
import collections, os, sys, psutil, dftrace_ai
from dftrace_ai.run import system_counters
Disk = collections.namedtuple("Disk", "read_bytes write_bytes")
readings = [
    {"nvme0n1": Disk(100, 10), "nvme0n1p1": Disk(100, 10), "cciss/c0d0": Disk(1000, 5)},
    {"nvme0n1": Disk(140, 17), "nvme0n1p1": Disk(130, 16), "cciss/c0d0": Disk(1002, 6)},
]
psutil.disk_io_counters = lambda **_: readings.pop(0) if len(readings) > 1 else readings[0]
system_counters.BLOCK_DEVICES = sys.argv[1]
with dftrace_ai.tracing(system_counters_s=3600):
    pass
"""


def test_what_is_read_of_parts_of_disks_is_counted_once(
    tmp_path: Path, run_script: RunScript
) -> None:
    for name in ("nvme0n1", "cciss!c0d0"):
        (tmp_path / "block" / name).mkdir(parents=True)
    done = run_script(DISKS, args=[str(tmp_path / "block")])
    (sample,) = [e for e in done.trace().of("C") if e.name == "disk bytes"]
    assert sample.args == {"read": 42, "written": 8}


DRIVER = """
#include <string.h>
typedef struct { unsigned gpu, memory; } Use;
static int gpu;
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
    *handle = &gpu;
    return strcmp(uuid, "GPU-0a1b") ? 6 : 0;
}
int nvmlDeviceGetUtilizationRates(void* handle, Use* use) { use->gpu = 87; use->memory = 40; return 0; }
int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts) { *milliwatts = 312500; return 0; }
int nvmlDeviceGetTemperature(void* handle, int sensor, unsigned* celsius) { *celsius = 71; return sensor; }
int nvmlDeviceGetClockInfo(void* handle, int clock, unsigned* mhz) { *mhz = clock == 1 ? 1410 : 0; return 3; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
    *reasons = 0x1 | 0x4;
    return 0;
}
"""

# Torch as far as it is asked: two GPUs, of which this process holds memory on the second.
GPUS = """
import sys, types
from pathlib import Path
import dftrace_ai
from dftrace_ai.run import system_counters

cuda = types.SimpleNamespace(
    is_initialized=lambda: True,
    device_count=lambda: 2,
    memory_allocated=lambda n: 5 * n,
    memory_reserved=lambda n: 7 * n,
    get_device_properties=lambda n: types.SimpleNamespace(uuid="0a1b"),
)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
system_counters.DRIVERS = ("/dev/null",)
if sys.argv[1:] == ["without"]:
    sys.modules["pynvml"] = None
with dftrace_ai.tracing(system_counters_s=3600):
    pass
"""


def test_what_the_driver_says_of_the_gpus_that_a_process_uses(
    run_script: RunScript, tmp_path: Path
) -> None:
    """By NVIDIA's own package, over a library that stands for the driver's; MHz are not supported."""
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no compiler for a library that stands for the driver's")
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-x", "c", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True
    )
    done = run_script(GPUS, env={"LD_LIBRARY_PATH": str(tmp_path)})
    told = {e.name: dict(e.args) for e in done.trace().of("C") if e.name.startswith("GPU")}
    assert told == {
        "GPU memory bytes": {"allocated 0": 0, "reserved 0": 0, "allocated 1": 5, "reserved 1": 7},
        "GPU %": {"busy 1": 87},
        "GPU W": {"1": 312.5},
        "GPU C": {"1": 71},
        "GPU throttled": {"power 1": 1, "heat 1": 0},
    }
    assert done.stderr == ""


def test_that_gpus_are_not_sampled_is_told_once_where_there_are_some(run_script: RunScript) -> None:
    done = run_script(GPUS, args=["without"])
    assert done.stderr.count("use, power and clocks of GPUs are not sampled") == 1
    assert "pip install 'dftrace_ai[gpu]'" in done.stderr


RANKS = """
import os, sys
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
import dftrace_ai
from dftrace_ai import ai

def recorded(name, auto=True, groups=0, **settings):
    settings["log_file"] = os.path.dirname(os.environ["DFTRACE_LOG_FILE"]) + "/" + name
    with dftrace_ai.tracing(**settings):
        if auto:
            dftrace_ai.auto()
        if groups:
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=groups)
        with ai.compute.forward:
            pass
    dftrace_ai.auto.remove()
    if groups:
        dist.destroy_process_group()

recorded("alone")
recorded("group", groups=2)
recorded("group_of_one", groups=1)
recorded("not_wanted", groups=2, system_counters_s=None)
recorded("by_hand", auto=False, groups=2)
recorded("launched", rank=1, world_size=4)
dftrace_ai.auto(log_file=os.path.dirname(os.environ["DFTRACE_LOG_FILE"]) + "/first")
dftrace_ai.finalize()
recorded("again", auto=False, groups=2)
"""


def test_ranks_tell_how_much_memory_they_have(run_script: RunScript) -> None:
    done = run_script(RANKS)
    assert done.stderr == ""
    counters = {
        trace.path.name.partition("-")[0]: {e.name for e in trace.of("C")}
        for trace in done.traces(perfetto=False)
    }
    told = {"memory bytes"}
    assert counters == {
        **dict.fromkeys(("alone", "group_of_one", "not_wanted", "by_hand"), set()),
        **dict.fromkeys(("group", "launched", "again"), told),
    }
