"""What lies beside steps: memory, by samples of counters, and tensors that are not finite."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.steps.samples import MOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.processes import Process
    from dftrace_ai.analysis.steps.samples import Samples
    from dftrace_ai.trace_format.json_types import Json

UNKNOWN: Final = -1
"""In place of bytes, where nothing has been sampled yet."""

# As the sampling of the machine names them.
RESIDENT: Final = ("memory bytes", "process")
ON_DEVICE: Final = ("GPU memory bytes", "allocated ")


@dataclass(frozen=True, repr=False)
class StepMarks:
    """What counters and tensor inspection say of each step."""

    # Memory of the process: the greatest sample in the step, or else the last before it; `UNKNOWN`
    # where there is none.
    rss_bytes: Integers
    device_bytes: Integers  # the same of what torch holds on all its GPUs together
    nonfinite: Integers  # how many tensors stopped being finite in the step
    # Layer and tensor of these, by step, as far as there are any.
    tensors: dict[int, tuple[str, ...]]

    def beside(self, step: int) -> Beside:
        """Return what lies beside one step."""
        names = self.tensors.get(step, ())
        return Beside(
            _known(self.rss_bytes[step]),
            _known(self.device_bytes[step]),
            len(names),
            names[0] if names else None,
        )


@dataclass(frozen=True)
class Beside:
    """What lies beside one step; None what is not known."""

    rss_bytes: int | None  # memory of the process
    device_bytes: int | None  # what torch holds on its GPUs
    nonfinite: int  # how many tensors stopped being finite in it
    nonfinite_tensor: str | None  # layer and tensor of the first of these


def _known(level: int) -> int | None:
    return None if level == UNKNOWN else int(level)


def marks_of(process: Process, start_ns: Integers, end_ns: Integers) -> StepMarks:
    """Return what lies beside steps."""
    tensors: defaultdict[int, list[str]] = defaultdict(list)
    for at_ns, name in process.nonfinite:
        step = int(np.searchsorted(start_ns, at_ns, side="right")) - 1
        if step >= 0 and at_ns <= end_ns[step]:
            tensors[step].append(name)
    counts = np.broadcast_to(np.int64(0), len(start_ns))
    if tensors:
        counts = counts.copy()
        for step, names in tensors.items():
            counts[step] = len(names)
    return StepMarks(
        _sampled(levels_of(process.samples, *RESIDENT), start_ns, end_ns),
        _sampled(levels_of(process.samples, *ON_DEVICE), start_ns, end_ns),
        counts,
        {step: tuple(names) for step, names in tensors.items()},
    )


def levels_of(samples: Samples, counter: str, series: str) -> tuple[Integers, Integers]:
    """Return when a counter was sampled, and each time the sum of the series that begin so."""
    at_ns, value = samples.of(counter)
    levels = np.full(len(samples.values), UNKNOWN)
    for one in np.flatnonzero(np.bincount(value)).tolist():
        levels[one] = _level_of(samples.values[one], series)
    level = levels[value]
    return at_ns[level != UNKNOWN], level[level != UNKNOWN]


def _level_of(values: Mapping[str, Json], series: str) -> int:
    some = [
        int(value)
        for name, value in values.items()
        if name.startswith(series)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value < MOST
    ]
    return min(sum(some), int(MOST)) if some else UNKNOWN


def _sampled(levels: tuple[Integers, Integers], start_ns: Integers, end_ns: Integers) -> Integers:
    at, level = levels
    if not len(at):
        return np.broadcast_to(np.int64(UNKNOWN), len(start_ns))
    first = np.searchsorted(at, start_ns)
    behind = np.searchsorted(at, end_ns, side="right")
    last = np.where(behind > 0, level[np.maximum(behind - 1, 0)], UNKNOWN)
    for step in np.flatnonzero(behind - first > 1).tolist():
        last[step] = level[first[step] : behind[step]].max()
    return last
