"""What tensor inspection puts on the timeline of the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai._native import Node, told_values
from dftrace_ai.run import emitting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.run.emitting import Moment

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


def numbers(
    name: str,
    about: Mapping[str, str | int],
    values: Mapping[str, float],
    counts: Mapping[str, int],
    moment: Moment,
) -> None:
    """Record numbers of a tensor, whoever made them."""
    # JSON has no NaN and no infinities: they become null, with the text beside it.
    told, finite = told_values(values)
    args = {**about, **told, **counts}
    emitting.instant(name, args, category="tensor_stats", track=STATISTICS_TRACK, at=moment)
    if finite:
        emitting.counter(name, finite, at=moment)


def made_by(device: object, what: str) -> None:
    """Tell by what the statistics of tensors on a device are made."""
    emitting.metadata(f"tensor_stats_{device}", what, in_every_part=True)


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
