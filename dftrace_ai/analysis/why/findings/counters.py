"""What the system counts beside the run: memory that leaks, disks and GPUs that are told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.robust_statistics import Share, trend_of
from dftrace_ai.analysis.texts import percent
from dftrace_ai.analysis.thresholds import Limit
from dftrace_ai.analysis.why.model import Memory, figures_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding

# Memory: of fewer samples nothing is told, and at first it settles.
FEWEST_SAMPLES: Final = 20
MOST_POINTS: Final = 200
SETTLING: Final = 0.2
LEAST_TAU_OF_MEMORY: Final = 0.8
# So many processors that wait for disks are told, so little use of a GPU, and so many of the
# samples in which something holds its clocks down.
WAITING_PROCESSORS: Final = 0.5
IDLE_GPU_PERCENT: Final = 30.0
THROTTLED: Final = 0.1
FEWEST_LOOKS: Final = 5


def memory_creep(evidence: Evidence) -> Finding | None:
    """Return the memory that grows for as long as the run goes on."""
    samples = evidence.rank.process.samples
    counters = [name for name in samples.names if "memory" in name.lower()]
    series = {
        f"{counter}, {name}": points
        for counter in dict.fromkeys(counters)
        for name, points in samples.series(counter).items()
        # What the host uses is also others', and what torch reserves it keeps.
        if name != "used" and "reserved" not in name
    }
    found = [
        finding
        for name, points in sorted(series.items(), key=lambda one: one[0])
        if (finding := _creep(evidence, name, *points))
    ]
    return max(found, key=lambda finding: figures_of(finding, Memory)["grown_bytes"], default=None)


def waiting_processors(evidence: Evidence) -> float:
    """Return how many processors of the host waited for disks; 0 where they were too few."""
    percent_of_all = _means(evidence, "cpu %").get("io wait", 0.0)
    waiting = percent_of_all / 100 * (evidence.rank.process.header.cpus or 0)
    return waiting if waiting >= WAITING_PROCESSORS else 0.0


def machine_notes(evidence: Evidence) -> Iterator[str]:
    """Yield what the counters say of GPUs while the rank trained."""
    for name, mean in sorted(_means(evidence, "GPU %").items()):
        what, _, device = name.rpartition(" ")
        if what == "busy" and mean < IDLE_GPU_PERCENT:
            yield f"GPU {device} was in use for {mean:.0f} % of the time, as its driver counts"
    for name, mean in sorted(_means(evidence, "GPU throttled").items()):
        what, _, device = name.rpartition(" ")
        if mean >= THROTTLED:
            limit = "its power limit" if what == "power" else "heat"
            yield f"GPU {device} was slowed down by {limit} in {percent(mean)} of the samples"


def _means(evidence: Evidence, counter: str) -> dict[str, float]:
    """Return the mean of each series of a counter while the rank trained."""
    process, steps = evidence.rank.process, evidence.steps
    low, high = int(steps.start_ns[0]), int(steps.end_ns[-1])
    series = {
        name: values[(at_ns >= low) & (at_ns <= high)]
        for name, (at_ns, values) in process.samples.series(counter).items()
    }
    return {name: float(np.mean(v)) for name, v in series.items() if len(v) >= FEWEST_LOOKS}


def _creep(evidence: Evidence, name: str, at: Integers, level: Integers) -> Finding | None:
    first = int(evidence.steps.start_ns[0])
    begin = first + SETTLING * (evidence.last_ns - first)
    at = at.astype(float)
    at, level = at[at >= begin], level[at >= begin]
    if len(at) < FEWEST_SAMPLES:
        return None
    seconds = (at - at[0]) / 1e9
    # The trend looks at all pairs.
    every, late_ones = _evenly(0, len(at)), _evenly(len(at) * 2 // 3, len(at))
    trend = trend_of(level[every], seconds[every])
    lasted = float(seconds[-1])
    grown = trend.low * lasted
    # Caches fill up and then stay: what grows late as it did early does not.
    late = trend_of(level[late_ones], seconds[late_ones]).slope
    if trend.tau < LEAST_TAU_OF_MEMORY or late < 0.5 * trend.slope:
        return None
    limits = evidence.limits
    least = max(limits["memory-mb"].warning * 1e6, limits["memory"].warning * float(level[0]))
    if grown < least:
        return None
    header = evidence.rank.process.header
    total = header.memory_bytes if header and "gpu" not in name.lower() else None
    left = None if total is None else max(0.0, total - float(level[-1]))
    before = max(float(level[0]), 1.0) / lasted
    return evidence.finding(
        "memory-creep",
        Limit(0.0, limits["memory"].critical),
        Share(trend.slope / before, trend.low / before, trend.high / before),
        Memory(
            bytes_a_second=int(trend.slope),
            grown_bytes=int(grown),
            level_bytes=int(level[-1]),
            full_in_s=None if left is None else int(left / max(trend.slope, 1e-9)),
        ),
        share_of="growth",
        cause=name,
    )


def _evenly(low: int, high: int) -> Integers:
    """Return indices from `low` up to `high`, at even distances where there are too many."""
    return np.linspace(low, high - 1, min(high - low, MOST_POINTS)).astype(int)
