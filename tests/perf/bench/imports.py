"""What importing each package costs a fresh interpreter, and what its first beginning does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .figures import Bench, Series, Target, interval
from .processes import Homes, run_once

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

OF_KEYWORDS = "dftrace_ai, keywords"
BY_PYDANTIC = "dftrace_ai, a Config"
SETTINGS = "log_file='trace', flush_interval_ms=500, data_dir='data'"
FIRST = {
    OF_KEYWORDS: (
        "main",
        "import dftrace_ai",
        f"dftrace_ai.initialize({SETTINGS})",
    ),
    BY_PYDANTIC: (
        "main",
        "import dftrace_ai",
        f"dftrace_ai.initialize(dftrace_ai.Config({SETTINGS}))",
    ),
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


def cpu_ratio(bench: Bench, subject: str, against: str) -> list[str]:
    """Return the ratio of processor times, which other work disturbs less than the wall's."""
    pairs = zip(bench.find(subject).cpu_samples, bench.find(against).cpu_samples, strict=False)
    ratios = [ours / theirs for ours, theirs in pairs]
    if not ratios:
        return []
    found = interval(ratios)
    ratio = f"{found.median:.3f} [{found.low:.3f} .. {found.high:.3f}]"
    return [f"Processor time, all threads, {subject}: {ratio} x {against}"]


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
    first = Bench(
        "initialize",
        "the first `initialize` of a process, what it imports included",
        "ms",
        targets=[Target(OF_KEYWORDS, 1 / 5, BY_PYDANTIC)],
        reference=OF_KEYWORDS,
        notes=["A Config is a model of pydantic's, by which all settings went once."],
    )
    for name in FIRST:
        first.series.append(Series(name))
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
            for name, (home, before, statement) in FIRST.items():
                env = {"DFTRACER_ENABLE": "1"} if home == "peers" else {}
                code = FIRST_PROBE.format(before=before, statement=statement)
                answer = run_once(homes.python(home), ["-c", code], Path(scratch), env)
                if "missing" in answer:
                    first.find(name).missing = answer["missing"]
                elif number > 0:
                    first.find(name).samples.append(answer["ms"])
                    first.find(name).cpu_samples.append(answer["cpu_ms"])
    first.notes += cpu_ratio(first, OF_KEYWORDS, BY_PYDANTIC)
    return [wall, torch, first]
