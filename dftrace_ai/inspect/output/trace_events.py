"""What tensor inspection puts on the timeline of the trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dftrace_ai._native import Node, told_values
from dftrace_ai.run import emitting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.output.logger_interface import Statistics
    from dftrace_ai.run.emitting import Moment

__all__ = [
    "FLUSH",
    "RING_STALL",
    "nonfinite",
    "numbers",
    "outside_of_spans",
    "plan",
    "statistics",
]

STATISTICS_TRACK = "tensor stats"
NONFINITE_TRACK = "non-finite values"
FIRST_NONFINITE_TRACK = "first non-finite value"
PLAN_TRACK = "inspection plan"

FLUSH = Node("inspect", "step")
"""The span of what `step` does beside counting: the cost of the inspection itself."""

RING_STALL = Node("inspect", "ring stall")
"""The span of waiting for a device that has not delivered its records in time."""


def outside_of_spans() -> Moment:
    """Return the present, in no span: for what was not seen where it is told."""
    return (emitting.moment()[0], 0, 0, 0)


def _shortened(value: float) -> float:
    """Return a number of fp32 with the nine digits that tell it from all others."""
    return float(f"{value:.9g}")


def _told(
    values: Mapping[str, float],
) -> tuple[dict[str, float | str | None], dict[str, float]]:
    """Return what an event tells of numbers, and the finite ones."""
    # JSON has no NaN and no infinities: they become null, with the text beside it.
    quickly = told_values(values)
    if quickly is not None:
        return quickly
    told: dict[str, float | str | None] = {}
    finite: dict[str, float] = {}
    for name, value in values.items():
        if math.isfinite(value):
            told[name] = finite[name] = _shortened(value)
        else:
            told[name] = None
            told[f"{name}_str"] = str(value)
    return told, finite


def statistics(found: Statistics) -> None:
    """Record the statistics of a tensor: an instant with all, and the finite ones plotted."""
    if not emitting.is_recording():
        return
    name = f"{found.layer}:{found.tensor}"
    counts = {
        "n": found.record.n_total,
        "n_nan": found.record.n_nan,
        "n_inf": found.record.n_inf,
        "n_zero": found.record.n_zero,
    }
    about: dict[str, str | int] = {
        "iteration": found.iteration,
        "rank": found.rank,
        "feature": found.feature,
    }
    known = {key: int(count) for key, count in counts.items() if not math.isnan(count)}
    numbers(name, about, found.values, known, found.moment)


def numbers(
    name: str,
    about: Mapping[str, str | int],
    values: Mapping[str, float],
    counts: Mapping[str, int],
    moment: Moment,
) -> None:
    """Record numbers of a tensor, whoever made them."""
    told, finite = _told(values)
    args = {**about, **told, **counts}
    emitting.instant(name, args, category="tensor_stats", track=STATISTICS_TRACK, at=moment)
    if finite:
        emitting.counter(name, finite, at=moment)


def nonfinite(
    layer: str, tensor: str, moment: Moment, args: Mapping[str, str | int | None]
) -> None:
    """Mark the moment at which the values of a tensor stopped being finite."""
    # What has a true ``first`` among its arguments stands on a track by itself.
    track = FIRST_NONFINITE_TRACK if args.get("first") else NONFINITE_TRACK
    emitting.instant(f"{layer}:{tensor}", args, category="nonfinite", track=track, at=moment)


def plan(layer: str, args: Mapping[str, str]) -> None:
    """Record what is planned for the GEMMs of a layer."""
    emitting.instant(layer, args, category="inspect", track=PLAN_TRACK, at=emitting.moment())
