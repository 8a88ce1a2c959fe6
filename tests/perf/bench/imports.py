"""What importing each package costs a fresh interpreter."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .figures import Bench, Series, Target
from .processes import Homes, run_once

PROBE = """
import sys, time
start = time.perf_counter_ns()
{statement}
took = time.perf_counter_ns() - start
print('{{"ms": %r, "torch": %d}}' % (took / 1e6, "torch" in sys.modules))
"""

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
        targets=[Target("dftrace_ai", 60.0)],
        reference="dftrace_ai",
    )
    torch = Bench(
        "import_torch",
        "torch in sys.modules after the import (1: yes)",
        "modules",
        targets=[Target("dftrace_ai", 0.0)],
    )
    for name in CONTESTANTS:
        wall.series.append(Series(name))
    torch.series.append(Series("dftrace_ai"))
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        # Round 0 fills the bytecode and page caches and is not counted.
        for number in range(rounds + 1):
            for name, (home, statement) in CONTESTANTS.items():
                env = {"DFTRACER_ENABLE": "1"} if home == "peers" else {}
                code = PROBE.format(statement=statement)
                answer = run_once(homes.python(home), ["-c", code], Path(scratch), env)
                if "missing" in answer:
                    wall.find(name).missing = answer["missing"]
                elif number > 0:
                    wall.find(name).samples.append(answer["ms"])
                    if name == "dftrace_ai":
                        torch.find(name).samples.append(float(answer["torch"]))
    return [wall, torch]
