"""What a step of 50 ms pays for its metrics, at most: what blocks side by side cannot resolve.

On a machine with other work two blocks of the same steps differ by several per cent. What logging
takes can be added up instead: the time in the call, with the caches as the step has left them, and
the processor time of all other threads, as though they took it from the step.
"""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

from .faulty import HOWS, WHERES

METRICS, STEPS = 20, 10
NOTHING = "nothing logged"
TRACKERS: dict[str, tuple[str, ...]] = {
    NOTHING: (),
    "local": ("local",),
    "tensorboard": ("tensorboard",),
    "local, tensorboard, trace and one in a process of its own": (
        *("local", "tensorboard", "trace", "quiet"),
    ),
}
FAULTY = {
    f"one that {how} {where}": {"how": how, "where": where} for how, where in product(HOWS, WHERES)
}
# One per cent of 50 ms; what a call may take has its own bound.
PAID_US, CALL_US = 500.0, 20.0


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Add up what a step pays, everyone in one process, one after the other."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as scratch:
        arguments = ["-m", "bench.loggers.step_probe", str(max(3, rounds // 3)), scratch]
        answer: dict[str, Any] = run_once(homes.main, arguments, Path(scratch))
    names = [*TRACKERS, *FAULTY]
    paid = Bench(
        "loggers_paid",
        f"what a step of 50 ms pays for {METRICS} metrics, at most",
        "us",
        targets=[Target(name, PAID_US) for name in names if name != NOTHING],
        notes=["The time in the call, and the processor time of all other threads of the process."],
    )
    call = Bench(
        "loggers_paid_call",
        "of that, the call, after a step, which has the caches",
        "us",
        targets=[Target(name, CALL_US) for name in TRACKERS if name != NOTHING],
    )
    apart = Bench(
        "loggers_paid_apart",
        "besides, processor time of the tracker's processes, for each step",
        "us",
        notes=["The system counts it in hundredths of a second: 1,000 us a step are one of them."],
    )
    for name in names:
        found = answer.get(name, {})
        calls, threads = found.get("call", []), found.get("threads", [])
        missing = answer.get("missing", "not run")
        sums = [sum(both) for both in zip(calls, threads, strict=True)]
        paid.series.append(Series(name, samples=sums, missing=missing))
        call.series.append(Series(name, samples=calls, missing=missing))
        processes = found.get("processes", [])
        apart.series.append(Series(name, samples=processes, missing=missing))
    return [paid, call, apart]
