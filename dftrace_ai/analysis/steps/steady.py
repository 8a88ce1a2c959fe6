"""Which steps of a run are its rule: without warm-up, and without the first of each loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.measuring import Steps

__all__ = ["Steady", "scale_of", "steady_of"]

# Beyond this part of the steps nothing is warm-up.
WARM_UP_SHARE: Final = 0.3
# From so many on noise may hide where calm begins.
ENOUGH_FOR_LEVELS: Final = 20


@dataclass(frozen=True, repr=False)
class Steady:
    """The steps that are judged."""

    warm_up: int  # steps at the beginning that are not
    mask: Integers  # which steps are
    median_ns: float  # of the steady steps; where there are none, of all that may be
    scale_ns: float  # how much these usually differ from it

    def __len__(self) -> int:
        return int(self.mask.sum())


def scale_of(values: Integers) -> float:
    """Return how much values usually differ from their median; never below 2 % of it.

    A perfect rhythm must not make all else an outlier.
    """
    median = float(np.median(values))
    return max(1.4826 * float(np.median(np.abs(values - median))), 0.02 * abs(median), 1.0)


def steady_of(steps: Steps) -> Steady:
    """Tell the steady steps from the others."""
    time, count = steps.time_ns, len(steps)
    # Where every pass is of one step, there are no others than the first.
    body = np.ones(count, bool) if steps.first.all() else ~steps.first
    body[0] = False
    late = body.copy()
    late[: int(WARM_UP_SHARE * count)] = False
    # What calm is, is taken from steps that are no warm-up whatever it turns out to be.
    calm = next((time[some] for some in (late, body) if some.sum() >= 5), time[body])
    calm = calm if len(calm) else time
    median, scale = float(np.median(calm)), scale_of(calm)
    warm_up = _warm_up(time, body, max(median + 6 * scale, 2 * median)) if count > 1 else 0
    steady = body.copy()
    steady[:warm_up] = False
    judged = time[steady] if steady.any() else calm
    return Steady(warm_up, steady, float(np.median(judged)), scale_of(judged))


def _warm_up(time: Integers, body: Integers, calm_ns: float) -> int:
    judged = np.flatnonzero(body)
    calm = time[judged] <= calm_ns
    most = WARM_UP_SHARE * len(time)
    warm_up = 1
    for at in range(len(judged)):
        if judged[at] > most:
            break
        if calm[at] and calm[at : at + 5].sum() >= 4:
            warm_up = int(judged[at]) if at else 1
            break
    if warm_up == 1 and len(judged) >= ENOUGH_FOR_LEVELS and not calm[:3].any():
        return _level_ends(time)
    return warm_up


def _level_ends(time: Integers) -> int:
    """Return where two levels fit the logarithms best, if the first is thrice the second."""
    log = np.log(np.maximum(time, 1))
    best, at = np.inf, 1
    for cut in range(2, int(WARM_UP_SHARE * len(time))):
        before, after = log[:cut], log[cut:]
        misfit = np.abs(before - np.median(before)).sum() + np.abs(after - np.median(after)).sum()
        if misfit < best:
            best, at = misfit, cut
    return at if np.median(time[:at]) >= 3 * np.median(time[at:]) else 1
