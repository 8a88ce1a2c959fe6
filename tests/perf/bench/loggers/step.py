"""What a step of 50 ms pays for its metrics, at most: what blocks side by side cannot resolve.

On a machine with other work two blocks of the same steps differ by several per cent. What logging
takes can be added up instead: the time in the call, with the caches as the step has left them, and
the processor time of all other threads, as though they took it from the step.
"""

from __future__ import annotations

from itertools import product

from bench.processes import Homes, probe
from bench.series import Bench, Target

from .trackers import HOWS, WHERES

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
    answer = probe(homes.main, "loggers.step_probe", max(3, rounds // 3))
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
    missing = answer.get("missing", "not run")
    figures = {name: answer.get(name, {}) for name in names}
    parts = {
        part: {name: found.get(part, []) for name, found in figures.items()}
        for part in ("call", "threads", "processes")
    }
    sums = {
        name: [sum(both) for both in zip(calls, parts["threads"][name], strict=True)]
        for name, calls in parts["call"].items()
    }
    return [
        paid.fill(sums, names, missing),
        call.fill(parts["call"], names, missing),
        apart.fill(parts["processes"], names, missing),
    ]
