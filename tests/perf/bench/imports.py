"""What importing each package costs a fresh interpreter, and what its first beginning does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from .processes import Homes, run_once
from .series import Bench, Series, Target

PROBE = """
import sys, time
start = time.perf_counter_ns()
{statement}
took = time.perf_counter_ns() - start
print('{{"ms": %r, "torch": %d}}' % (took / 1e6, "torch" in sys.modules))
"""

# What begins is there already: the wall, the processor time of all threads.
FIRST_PROBE = """
{before}
import sys, time
start, cpu = time.perf_counter_ns(), time.process_time_ns()
{statement}
took, busy = time.perf_counter_ns() - start, time.process_time_ns() - cpu
print('{{"ms": %r, "cpu_ms": %r}}' % (took / 1e6, busy / 1e6))
"""

SETTINGS = "log_file='trace', flush_interval_ms=500, data_dir='data'"
FIRST = {
    "dftrace_ai": ("main", "import dftrace_ai", f"dftrace_ai.initialize({SETTINGS})"),
    "pydftracer, initialize_log": (
        "peers",
        "from dftracer.python import dftracer",
        "log = dftracer.initialize_log('trace', None, -1)",
    ),
}

CONTESTANTS = {
    "dftrace_ai": ("main", "import dftrace_ai"),
    "dftrace_ai, and initialize": ("main", "import dftrace_ai; dftrace_ai.initialize()"),
    "pydftracer": ("peers", "from dftracer.python import ai, dftracer, dft_fn"),
    "pydftracer, and initialize_log": (
        "peers",
        "from dftracer.python import dftracer; log = dftracer.initialize_log('trace', None, -1)",
    ),
    "viztracer": ("peers", "import viztracer"),
    "nvtx": ("peers", "import nvtx"),
    "opentelemetry": ("peers", "import opentelemetry.sdk.trace"),
}


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Import each package in fresh interpreters, in turn."""
    wall = Bench(
        "import",
        "import, fresh interpreter",
        "ms",
        targets=[
            Target("dftrace_ai", 60.0),
            Target("dftrace_ai, and initialize", 0.8, "pydftracer, and initialize_log"),
        ],
        reference="dftrace_ai",
    )
    torch = Bench(
        "import_torch",
        "torch in sys.modules after the import (1: yes)",
        "modules",
        targets=[Target("dftrace_ai", 0.0)],
    )
    first = Bench(
        "initialize",
        "the first `initialize` of a process, what it imports included",
        "ms",
        targets=[Target("dftrace_ai", 40.0)],
        reference="dftrace_ai",
    )
    wall.series = [Series(name) for name in CONTESTANTS]
    torch.series = [Series("dftrace_ai")]
    first.series = [Series(name) for name in FIRST]
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:

        def answer(home: str, code: str) -> dict[str, Any]:
            env = {"DFTRACER_ENABLE": "1"} if home == "peers" else {}
            return run_once(homes.python(home), ["-c", code], Path(scratch), env)

        # Round 0 fills the bytecode and page caches and is not counted.
        for number in range(rounds + 1):
            for name, (home, statement) in CONTESTANTS.items():
                told = answer(home, PROBE.format(statement=statement))
                if number:
                    wall.take(name, told, "ms")
                    if name == "dftrace_ai":
                        torch.take(name, told, "torch")
            for name, (home, before, statement) in FIRST.items():
                told = answer(home, FIRST_PROBE.format(before=before, statement=statement))
                if number:
                    first.take(name, told, "ms", cpu="cpu_ms")
    return [wall, torch, first]
