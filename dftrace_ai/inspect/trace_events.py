"""What tensor inspection puts on the timeline of the trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dftrace_ai import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dftrace_ai.inspect.sinks import Statistics

__all__ = [
    "FLUSH",
    "RING_STALL",
    "Moment",
    "nonfinite",
    "numbers",
    "outside_of_spans",
    "plan",
    "statistics",
    "this_moment",
]

STATISTICS_TRACK = "tensor stats"
NONFINITE_TRACK = "non-finite values"
PLAN_TRACK = "inspection plan"

FLUSH = _native.Node("inspect", "step")
"""The span of what `step` does beside counting: the cost of the inspection itself."""

RING_STALL = _native.Node("inspect", "ring stall")
"""The span of waiting for a device that has not delivered its records in time."""

Moment = tuple[int, int, int, int]
"""When and where something was: nanoseconds since the epoch by the trace's clock, id and level of
the span that was open, and the run that the span belongs to. What is told later lies there."""

this_moment: Callable[[], Moment] = _native.moment
"""Returns the present, in the span that is open in this thread or task."""


def outside_of_spans() -> Moment:
    """Return the present, in no span: for what was not seen where it is told."""
    return (this_moment()[0], 0, 0, 0)


def _shortened(value: float) -> float:
    """Return a number of fp32 with the nine digits that tell it from all others."""
    return float(f"{value:.9g}")


def _told(values: Mapping[str, float]) -> dict[str, Any]:
    """JSON has no NaN and no infinities: they become null, with the text beside it."""
    told: dict[str, Any] = {}
    for name, value in values.items():
        if math.isfinite(value):
            told[name] = _shortened(value)
        else:
            told[name] = None
            told[f"{name}_str"] = str(value)
    return told


def statistics(found: Statistics) -> None:
    """Record the statistics of a tensor: an instant with all of them, and the finite ones plotted.

    Args:
        found: the statistics; the instant lies where the tensor was seen.
    """
    if not _native.is_on():
        return
    name = f"{found.layer}:{found.tensor}"
    counts = {
        "n": found.record[13],
        "n_nan": found.record[8],
        "n_inf": found.record[9],
        "n_zero": found.record[10],
    }
    about = {"iteration": found.iteration, "rank": found.rank, "feature": found.feature}
    known = {key: int(count) for key, count in counts.items() if not math.isnan(count)}
    numbers(name, about, found.values, known, found.moment)


def numbers(
    name: str,
    about: Mapping[str, Any],
    values: Mapping[str, float],
    counts: Mapping[str, int],
    moment: Moment,
) -> None:
    """Record numbers of a tensor, whoever made them.

    Args:
        name: ``{layer}:{tensor}``.
        about: what they belong to: iteration, rank, feature.
        values: the statistics, which may be NaN or infinite.
        counts: elements by kind, as far as they are known.
        moment: when and where the tensor was seen.
    """
    args = {**about, **_told(values), **counts}
    _native.instant("tensor_stats", name, args, STATISTICS_TRACK, moment)
    finite = {stat: _shortened(value) for stat, value in values.items() if math.isfinite(value)}
    if finite:
        _native.counter(name, finite, moment)


def nonfinite(layer: str, tensor: str, moment: Moment, args: dict[str, Any]) -> None:
    """Mark the moment at which the values of a tensor stopped being finite."""
    _native.instant("nonfinite", f"{layer}:{tensor}", args, NONFINITE_TRACK, moment)


def plan(layer: str, args: dict[str, Any]) -> None:
    """Record what is planned for the GEMMs of a layer."""
    _native.instant("inspect", layer, args, PLAN_TRACK, this_moment())
