"""What tensor inspection puts on the timeline of the trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dftrace_ai import _native

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.sinks import Statistics

__all__ = ["FLUSH", "RING_STALL", "nonfinite", "now_ns", "numbers", "plan", "statistics"]

STATISTICS_TRACK = "tensor stats"
NONFINITE_TRACK = "non-finite values"
PLAN_TRACK = "inspection plan"

FLUSH = _native.Node("inspect", "step")
"""The span of what `step` does beside counting: the cost of the inspection itself."""

RING_STALL = _native.Node("inspect", "ring stall")
"""The span of waiting for a device that has not delivered its records in time."""

now_ns = _native.time_ns
"""The present in nanoseconds since the epoch, by the trace's clock."""


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
        found: the statistics; the instant lies at the moment when the tensor was seen.
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
    numbers(name, about, found.values, known, found.time_ns)


def numbers(
    name: str,
    about: Mapping[str, Any],
    values: Mapping[str, float],
    counts: Mapping[str, int],
    time_ns: int,
) -> None:
    """Record numbers of a tensor, whoever made them.

    Args:
        name: ``{layer}:{tensor}``.
        about: what they belong to: iteration, rank, feature.
        values: the statistics, which may be NaN or infinite.
        counts: elements by kind, as far as they are known.
        time_ns: when the tensor was seen, nanoseconds since the epoch.
    """
    args = {**about, **_told(values), **counts}
    _native.instant("tensor_stats", name, args, STATISTICS_TRACK, time_ns)
    finite = {stat: _shortened(value) for stat, value in values.items() if math.isfinite(value)}
    if finite:
        _native.counter(name, finite, time_ns)


def nonfinite(layer: str, tensor: str, time_ns: int, args: dict[str, Any]) -> None:
    """Mark the moment at which the values of a tensor stopped being finite."""
    _native.instant("nonfinite", f"{layer}:{tensor}", args, NONFINITE_TRACK, time_ns)


def plan(layer: str, args: dict[str, Any]) -> None:
    """Record what is planned for the GEMMs of a layer."""
    _native.instant("inspect", layer, args, PLAN_TRACK, now_ns())
